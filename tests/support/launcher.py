"""Runs the command, alone or by MPI's launcher, to its end.

Open MPI's launcher, once the ranks of a failed job have ended and it has said with which code, may
crash or hang in PMIx_server_finalize (seen with 4.1.4 and PMIx 4.2.2). That code is the result.
"""

import re
import signal
import subprocess
import time
from pathlib import Path

POLL_SECONDS = 0.5
HANGING_SECONDS = 20  # without ranks; more than tests let it wait for them
TOLD = re.compile(r"^ *Exit code: +(\d+)$|^with errorcode (\d+)\.$", re.MULTILINE)


def run(command, timeout):
    process = subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    return finish(process, timeout)


def finish(process, timeout):
    """What subprocess.run returns; kills the process where it takes longer."""
    end = time.monotonic() + timeout
    last_seen = None  # with children: they are ranks, if it is a launcher
    while True:
        try:
            output, errors = process.communicate(timeout=POLL_SECONDS)
            return subprocess.CompletedProcess(
                process.args, exit_code(process.returncode, errors), output, errors
            )
        except subprocess.TimeoutExpired:
            now = time.monotonic()
            if has_children(process.pid):
                last_seen = now
            if last_seen is not None and now - last_seen > HANGING_SECONDS:
                process.kill()
            elif now > end:
                process.kill()
                process.communicate()
                raise


def has_children(process):
    """Whether any of them runs, or is stopped."""
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            if any(is_alive(child) for child in children.read_text().split()):
                return True
        except OSError:  # the thread has ended
            continue
    return False


def is_alive(process):
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def exit_code(launchers, errors):
    told = TOLD.search(errors) if launchers in (-signal.SIGSEGV, -signal.SIGKILL) else None
    return int(told[1] or told[2]) if told else launchers
