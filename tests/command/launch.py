"""Starts the command.

Environment: SAFESHUFFLE, the command; MPIEXEC, the launcher with {ranks} where the number goes.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import launcher  # noqa: E402

TIMEOUT_SECONDS = 100


def run(*arguments, ranks=1, redirection=""):
    """On several ranks, or by itself without a launcher. `redirection` is that of each process, as
    the shell has it."""
    mpiexec = os.environ["MPIEXEC"].replace("{ranks}", str(ranks)).split() if ranks > 1 else []
    shell = ["sh", "-c", f'exec "$0" "$@" {redirection}'] if redirection else []
    command = [*mpiexec, *shell, os.environ["SAFESHUFFLE"], *arguments]
    return launcher.run(command, TIMEOUT_SECONDS)
