"""Starts the command.

Environment: SAFESHUFFLE, the command; MPIEXEC, the launcher with {ranks} where the number goes.
"""

import os
import subprocess

TIMEOUT_SECONDS = 60


def run(*arguments, ranks=1, redirection=""):
    """On several ranks, or by itself without a launcher. `redirection` is that of each process, as
    the shell has it."""
    launcher = os.environ["MPIEXEC"].replace("{ranks}", str(ranks)).split() if ranks > 1 else []
    shell = ["sh", "-c", f'exec "$0" "$@" {redirection}'] if redirection else []
    return subprocess.run(
        [*launcher, *shell, os.environ["SAFESHUFFLE"], *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
