"""Runs the command on several ranks, with faults, and sees that nothing is left of it.

Environment: SAFESHUFFLE, the command; MPIEXEC, the launcher with {ranks} where the number goes;
INJECT, the library made of inject.cpp.
"""

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

# What mpirun may take to start and to end a job on a busy machine, beyond the job's own time.
SLACK_SECONDS = 12
LAUNCH_TIMEOUT_SECONDS = 60
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


def run(ranks, *arguments, faults=()):
    """`faults` are rules of inject.cpp, as dictionaries."""
    launcher = os.environ["MPIEXEC"].replace("{ranks}", str(ranks)).split()
    command = [*launcher, os.environ["SAFESHUFFLE"], *map(str, arguments)]
    begin = time.monotonic()
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment_with(faults),
        timeout=LAUNCH_TIMEOUT_SECONDS,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr, time.monotonic() - begin)


def environment_with(faults):
    if not faults:
        return dict(os.environ)
    rules = ";".join(map(rule, faults))
    return dict(os.environ) | {"LD_PRELOAD": os.environ["INJECT"], "FAULTS": rules}


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


def wait_until_gone(argument, seconds=5):
    """Whether all processes with this text on their command line end in time."""
    end = time.monotonic() + seconds
    while processes_with(argument):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
