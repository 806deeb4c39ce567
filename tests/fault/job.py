"""Runs the command on several ranks, with faults, and sees that nothing is left of it.

Environment: SAFESHUFFLE, the command; MPIEXEC, the launcher with {ranks} where the number goes;
INJECT, the library made of inject.cpp.
"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import launcher  # noqa: E402

# What mpirun may take to start and to end a job on a busy machine, beyond the job's own time.
SLACK_SECONDS = 120
LAUNCH_TIMEOUT_SECONDS = 300
MESSAGE_PREFIX = "safeshuffle: error: "


@dataclass(frozen=True)
class Result:
    code: int
    output: str
    errors: str
    seconds: float

    @property
    def messages(self):
        """The error messages of the command itself; launchers print more."""
        lines = self.errors.splitlines()
        return [line[len(MESSAGE_PREFIX) :] for line in lines if line.startswith(MESSAGE_PREFIX)]


def run(ranks, *arguments, faults=(), grace_seconds=None):
    """`faults` are rules of inject.cpp, as dictionaries; `grace_seconds` as of Job."""
    return Job(ranks, *arguments, faults=faults, grace_seconds=grace_seconds).end()


class Job:
    """The command while it runs; a single rank without a launcher if `alone`. Its process can be
    signalled.

    After a rank has failed, the launcher tells the others to end, and kills them `grace_seconds`
    later, whether or not they have ended meanwhile; None: the launcher's default, of 1."""

    def __init__(self, ranks, *arguments, faults=(), alone=False, grace_seconds=None):
        mpiexec = os.environ["MPIEXEC"].replace("{ranks}", str(ranks)).split()
        command = [os.environ["SAFESHUFFLE"], *map(str, arguments)]
        self.begin = time.monotonic()
        self.process = subprocess.Popen(
            command if alone else [*mpiexec, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment_with(faults) | grace(grace_seconds),
        )

    def end(self):
        """Waits for it; kills it where it takes too long. A launcher's exit code is that of the first
        rank to fail."""
        result = launcher.finish(self.process, LAUNCH_TIMEOUT_SECONDS)
        seconds = time.monotonic() - self.begin
        return Result(result.returncode, result.stdout, result.stderr, seconds)


def environment_with(faults):
    if not faults:
        return dict(os.environ)
    rules = ";".join(map(rule, faults))
    return dict(os.environ) | {"LD_PRELOAD": os.environ["INJECT"], "FAULTS": rules}


def grace(seconds):
    return {} if seconds is None else {"OMPI_MCA_odls_base_sigkill_timeout": str(seconds)}


def rule(fault):
    return " ".join(f"{key}={value}" for key, value in fault.items())


def processes_with(argument):
    """The processes that have this text on their command line."""
    found = []
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        try:
            line = (directory / "cmdline").read_bytes()
        except OSError:  # it ended meanwhile
            continue
        if str(argument).encode() in line:
            found.append(int(directory.name))
    return found


def open_files(directory):
    """The files in the directory, with a name or without, that processes with the directory on
    their command line have open; as paths below /proc."""
    found = []
    for process in processes_with(directory):
        try:
            for descriptor in Path(f"/proc/{process}/fd").iterdir():
                if descriptor.readlink().parent == directory:
                    found.append(descriptor)
        except OSError:  # it ended, or closed the file, meanwhile
            continue
    return found


def wait_until_gone(argument, seconds=60):
    """Whether all processes with this text on their command line end in time."""
    return wait_until(lambda: not processes_with(argument), seconds)


def wait_until(condition, seconds=100):
    """Whether it becomes true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
