"""Runs the command under test, alone or on several ranks.

Environment: SAFESHUFFLE, the command; MPIEXEC, the launcher with {ranks} where the number goes.
"""

import os
import subprocess

TIMEOUT_SECONDS = 60


def run(*arguments):
    """One process, no MPI launcher."""
    return _run([os.environ["SAFESHUFFLE"], *arguments])


def run_ranks(ranks, *arguments):
    launcher = os.environ["MPIEXEC"].replace("{ranks}", str(ranks)).split()
    return _run([*launcher, os.environ["SAFESHUFFLE"], *arguments])


def _run(command):
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
