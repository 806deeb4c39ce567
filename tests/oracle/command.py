"""Runs the command under test, alone or on several ranks.

Environment: SAFESHUFFLE, the command; MPIEXEC, the launcher with {ranks} where the number goes; SERVED, "http" or "s3"
for checkpoints that are loaded from such a server, see tests/remote/served.py.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import launcher  # noqa: E402

SERVER = None
if os.environ.get("SERVED"):
    sys.path.insert(0, str(Path(__file__).parents[1] / "remote"))
    import served

    SERVER = served.start(os.environ["SERVED"])

# Only what hangs takes so long, also on a machine of which the disk pauses for two minutes (seen).
TIMEOUT_SECONDS = 300

# A launcher mostly waits, so a few can do so at a time.
LAUNCHES_AT_A_TIME = 4


@dataclass(frozen=True)
class Measured:
    returncode: int
    stdout: str
    stderr: str
    seconds: float
    max_rss_bytes: int


def run(*arguments):
    """One process, no MPI launcher."""
    return _run([os.environ["SAFESHUFFLE"], *arguments])


def run_ranks(ranks, *arguments):
    return _run([*mpiexec(ranks), os.environ["SAFESHUFFLE"], *arguments])


def mpiexec(ranks):
    return os.environ["MPIEXEC"].replace("{ranks}", str(ranks)).split()


def load(work, ranks, *arguments):
    """Loads, verifies and saves into a new directory in `work`. Returns the directory and the report."""
    saved = Path(tempfile.mkdtemp(dir=work))
    report = saved.with_suffix(".json")
    if SERVER:
        arguments = (SERVER.url_of(arguments[0]), *arguments[1:])
    result = run_ranks(
        ranks, "load", *arguments, "--verify", "full", "--save-sharded", saved, "--report", report
    )
    assert result.returncode == 0, result.stderr
    return saved, json.loads(report.read_text(encoding="utf-8"))


def run_ranks_to_the_end(ranks, *arguments):
    """As `run_ranks`, but the launcher, which kills a job when a rank fails, does not learn of that;
    see `exit_codes`."""
    shell = ["sh", "-c", '"$0" "$@"; echo "exit code $?"']
    return _run([*mpiexec(ranks), *shell, os.environ["SAFESHUFFLE"], *arguments])


def exit_codes(result):
    """Those of all ranks."""
    return {int(code) for code in re.findall(r"^exit code (\d+)$", result.stdout, re.MULTILINE)}


def for_each(function, cases):
    """The results of `function` for each of the cases, some of which run at the same time."""
    with ThreadPoolExecutor(LAUNCHES_AT_A_TIME) as pool:
        return list(pool.map(function, cases))


def measure(*arguments):
    """As `run`, with what it took."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        start = time.monotonic()
        words = [os.environ["SAFESHUFFLE"], *(str(word) for word in arguments)]
        process = subprocess.Popen(words, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        rss = usage.ru_maxrss * 1024
        return Measured(process.returncode, out.read(), err.read(), seconds, rss)


def _run(words):
    return launcher.run(words, TIMEOUT_SECONDS)
