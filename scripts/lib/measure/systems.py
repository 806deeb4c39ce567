"""What is measured in turns. Each system has a name, `obstacle(device)`, why it cannot run so, if so, and
`run(case, prepare)`, which calls `prepare` right before it starts and returns what it took (`sample`). Those that load
also have `digests(case)`: of each rank's tensors."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

from lib import safeshuffle
from lib.measure import placement
from lib.measure.models import Checkpoint

TIMEOUT_SECONDS = 1800
SUMMED = ("cpu_seconds", "peak_resident_bytes", "peak_anonymous_bytes", "resident_before_bytes", "read_bytes")
PHASES = ("open", "plan", "allocate", "read", "h2d", "pack", "exchange", "wait")


class NotRun(Exception):
    """With the reason."""


class Replaced(Exception):
    """A command is no longer what was measured so far."""


@dataclasses.dataclass(frozen=True)
class Case:
    model: Checkpoint
    ranks: int
    dtype: str
    cache: str
    command: pathlib.Path  # a safeshuffle, for what is not measured
    scratch: pathlib.Path  # has room for the model
    options: tuple = ()  # further arguments of `load`
    device: str = ""  # cpu or cuda, if it must be that
    placement: str = ""  # the file that says what each rank is to end with


def summed(ranks, name):
    values = [rank.get(name) for rank in ranks]
    return None if None in values or not values else sum(values)


def sample(seconds, size, ranks, note=""):
    """A sample from those of all ranks; None for what is not known."""
    return {"seconds": seconds, "bytes": size, **{name: summed(ranks, name) for name in SUMMED}, "note": note}


def ways_of(report):
    """How a load was assigned, and read. Reports of older builds have fewer fields."""
    assigned = [report["assignment"]] if "assignment" in report else []
    return ", ".join(assigned + sorted({rank["io"]["path"] for rank in report["ranks"]}))


def phase_seconds(ranks):
    """Averages over the ranks, so that they add up to the average total."""
    return {f"{phase}_seconds": sum(rank["phases"].get(phase, 0) for rank in ranks) / len(ranks) for phase in PHASES}


def state_of(path):
    """What changes if a file is replaced."""
    status = pathlib.Path(path).stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


class Safeshuffle:
    """The command `load`, whose ranks `launch` starts."""

    runs_when = ("cold", "warm")
    loads = True
    settings = "load with its defaults, except for what is varied"

    def __init__(self, name="safeshuffle", command=safeshuffle.COMMAND, launch=safeshuffle.launcher):
        self.name, self.command, self.launch = name, pathlib.Path(command), launch
        self.state = state_of(command)

    def obstacle(self, device):
        return ""

    def versions(self):
        return {"safeshuffle": safeshuffle.run([self.command, "--version"]).split()[-1]}

    def save(self, case, directory):
        """The files that each rank saves."""
        safeshuffle.load(case.model.place, case.ranks, ["--dtype", case.dtype, "--save-sharded", directory],
                         self.command)
        return placement.saved_files(directory, case.ranks)

    def digests(self, case):
        with tempfile.TemporaryDirectory(prefix="safeshuffle-compare-", dir=case.scratch) as directory:
            return [placement.digests_of(path) for path in self.save(case, directory)]

    def run(self, case, prepare):
        report, watched = self.load(case, prepare)
        if case.device and report["device"].startswith("host") != (case.device == "cpu"):
            raise NotRun(f"loaded onto {report['device']}, the others onto {case.device}")
        ranks = [rank | seen for rank, seen in zip(report["ranks"], watched)]
        return sample(report["seconds"], case.model.bytes, ranks, ways_of(report)) | phase_seconds(ranks) | {
            "bottleneck": report.get("bottleneck", {}).get("phase")}

    def load(self, case, prepare):
        """The load report, and what the kernel counted of each rank. All nodes have the directory."""
        with tempfile.TemporaryDirectory(prefix="watched-", dir=case.scratch) as directory:
            prepare()
            report = safeshuffle.load(case.model.place, case.ranks, ["--dtype", case.dtype, *case.options],
                                      self.command, safeshuffle.program("lib.watched", directory), self.launch,
                                      case.scratch)
            if state_of(self.command) != self.state:
                raise Replaced(f"{self.command} was replaced while it was measured: measure again")
            return report, [json.loads(path.read_text()) for path in pathlib.Path(directory).iterdir()]


class Peer:
    """A library, driven by a program in scripts/peers."""

    runs_when = ("cold", "warm")
    loads = True

    def __init__(self, peer, environment):
        self.peer, self.environment = peer, environment
        self.name, self.settings = peer.name, peer.settings

    def obstacle(self, device):
        if self.peer.needs_gpu and device != "cuda":
            return "needs a GPU for each rank"
        return self.environment.obstacle(self.peer)

    def versions(self):
        return self.environment.versions_of(self.peer)

    def digests(self, case):
        return [rank["digests"] for rank in self.result(case, lambda: None, digests=True)["ranks"]]

    def run(self, case, prepare):
        result = self.result(case, prepare, digests=False)
        return sample(result["seconds"], case.model.bytes, result["ranks"])

    def result(self, case, prepare, digests):
        with tempfile.TemporaryDirectory(prefix="safeshuffle-compare-") as scratch:
            job = {"peer": self.peer.name, "files": case.model.places, "ranks": case.ranks,
                   "device": case.device, "placement": case.placement, "digests": digests, "scratch": scratch,
                   "result": str(pathlib.Path(scratch, "result.json"))}
            self.drive(job, case, prepare)
            return json.loads(pathlib.Path(job["result"]).read_text())

    def drive(self, job, case, prepare):
        path, said = pathlib.Path(job["scratch"], "job.json"), pathlib.Path(job["scratch"], "stderr")
        path.write_text(json.dumps(job))
        variables = self.environment.variables(self.peer) | self.peer.environment.get(case.cache, {})
        variables |= {} if case.device == "cuda" else {"CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "lo"}
        with open(said, "w+", encoding="utf-8") as stderr, subprocess.Popen(
            [self.environment.python, "-m", "peers.run", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=stderr, text=True, env=variables, start_new_session=True,
        ) as process:
            try:
                await_ready(process, prepare)
                process.communicate(timeout=TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired as error:
                raise NotRun(f"did not end within {TIMEOUT_SECONDS} s") from error
            finally:
                kill(process)
        if process.returncode != 0 or not pathlib.Path(job["result"]).exists():
            raise NotRun(f"failed: {failure(said.read_text(encoding='utf-8', errors='replace'))}")


def await_ready(process, prepare):
    """Prepares when the ranks are ready, and lets them load."""
    for line in process.stdout:  # libraries may print, too
        if line == "ready\n":
            prepare()
            process.stdin.write("go\n")
            process.stdin.flush()
            return


def kill(process):
    """The process and its ranks, if they still run."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def failure(said):
    """The line that tells most of a Python program's last words."""
    lines = said.strip().splitlines()
    errors = [line for line in lines if re.match(r"(?!\s)[^:]*(Error|Exception)[^:]*:", line)]
    return (errors[:1] or lines[-1:] or ["no message"])[0]


# For buffers, as the loader has them: the system divides reads into small pages, which is half as fast on some disks.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
FIO_JOBS = (
    {"ioengine": "psync", "bs": "1m", "jobs": 4},
    {"ioengine": "psync", "bs": "8m", "jobs": 4},
    {"ioengine": "io_uring", "iodepth": "64", "bs": "1m", "jobs": 1},
    {"ioengine": "libaio", "iodepth": "64", "bs": "1m", "jobs": 1},
    {"ioengine": "libaio", "iodepth": "16", "bs": "1m", "jobs": 1},  # less memory: faster on some virtual disks
)


def fio_sections(files, jobs):
    """What each of the jobs reads, as options of fio: whole files, dealt largest first; if there are fewer files than
    jobs, equal ranges of each."""
    if len(files) < jobs:
        parts = -(-jobs // len(files))
        return [{"filename": str(file), "offset": f"{100 * part // parts}%",
                 "size": f"{100 * (part + 1) // parts - 100 * part // parts}%"}
                for file in files for part in range(parts)]
    dealt = [[0, []] for _ in range(jobs)]
    for file in sorted(files, key=lambda file: file.stat().st_size, reverse=True):
        least = min(dealt, key=lambda hand: hand[0])
        least[0] += file.stat().st_size
        least[1].append(str(file).replace(":", "\\:"))
    return [{"filename": ":".join(names), "file_service_type": "sequential"} for _, names in dealt]


class Fio:
    """The best of a few sequential direct reads of the same files: the ceiling of a cold load."""

    name = "fio"
    runs_when = ("cold",)
    loads = False
    settings = "the fastest of " + "; ".join(
        " ".join(f"{key}={value}" for key, value in job.items())
        for job in FIO_JOBS) + "; all with direct=1 rw=read, into huge pages"

    def obstacle(self, device):
        return "" if shutil.which("fio") else "fio is not installed"

    def versions(self):
        return {"fio": safeshuffle.run(["fio", "--version"]).strip().removeprefix("fio-")}

    def run(self, case, prepare):
        runs = [self.read(case, job, prepare) for job in FIO_JOBS]
        able = [run for run in runs if isinstance(run, dict)]
        if not able:
            raise NotRun(f"failed: {runs[0]}")
        return max(able, key=lambda run: run["bytes"] / run["seconds"])

    def read(self, case, job, prepare):
        """A sample, or why there is none: not every kernel has every engine."""
        lines = ["[global]", "rw=read", "direct=1", "thread=1", "group_reporting=0", f"ioengine={job['ioengine']}",
                 f"bs={job['bs']}", f"iodepth={job.get('iodepth', 1)}", "invalidate=0"]
        for number, section in enumerate(fio_sections(case.model.files, job["jobs"])):
            lines += [f"[job{number}]", *(f"{key}={value}" for key, value in section.items())]
        prepare()
        result = subprocess.run(["fio", "--readonly", "--output-format=json", "-"], input="\n".join(lines) + "\n",
                                capture_output=True, text=True, check=False, env=os.environ | HUGE_PAGES)
        if result.returncode != 0:
            return failure(result.stderr or result.stdout)
        jobs = json.loads(result.stdout[result.stdout.index("{"):])["jobs"]
        seconds = max(entry["read"]["runtime"] for entry in jobs) / 1000
        return sample(seconds, sum(entry["read"]["io_bytes"] for entry in jobs), [],
                      " ".join(f"{key}={value}" for key, value in job.items()))


def rate_of_all(probed):
    """Bytes per second of all ranks together, reading from the page cache into new memory."""
    found = {entry["of"]: entry for entry in probed["measurements"] if entry["name"] == "read_warm_fresh"}
    measured = found.get("node") or found.get("one rank", {})  # that of one rank, if there are no others
    if "bytes_per_second" not in measured:
        raise NotRun(f"not measured: {measured.get('obstacle', 'safeshuffle probe does not read so here')}")
    return probed["place"]["nodes"] * measured["bytes_per_second"]["median"]


class CachedRead:
    """The ceiling of a load of cached files, as `safeshuffle probe` measures it with as many ranks: reading every byte
    from the page cache into memory that was just allocated."""

    name = "cached-read"
    runs_when = ("warm",)
    loads = False
    settings = "safeshuffle probe --quick: read_warm_fresh, all ranks at once"

    def __init__(self, launch):
        self.launch = launch

    def obstacle(self, device):
        return ""

    def versions(self):
        return {}

    def run(self, case, prepare):
        with tempfile.TemporaryDirectory(prefix="safeshuffle-compare-") as cache:  # so that nothing is kept of it
            prepare()
            try:
                probed = json.loads(safeshuffle.run([
                    *self.launch(case.ranks), "env", f"XDG_CACHE_HOME={cache}", case.command, "probe",
                    case.model.directory, "--quick", "--json", "--progress", "none"]))
            except safeshuffle.Failed as failed:
                raise NotRun(f"failed: {failed}") from failed
        return sample(case.model.bytes / rate_of_all(probed), case.model.bytes, [])


def ceilings(launch=safeshuffle.launcher):
    return [Fio(), CachedRead(launch)]
