"""docs/command.md beside --help: neither leaves out what the other has.

Environment: that of launch.py; SCRIPTS, whose directory has docs beside it.
"""

import os
import re
import unittest
from pathlib import Path

from launch import run

PAGE = Path(os.environ["SCRIPTS"]).parent / "docs/command.md"
OPTION = r"(?<![\w-])--[a-z][a-z-]*"

# Of which --help says all there is to say, or another page more.
NOT_ON_THE_PAGE = {
    "--help": set(),  # of every subcommand
    "--like": {"make"},
    "--quick": {"probe"},
}

# Options of mpirun, srun and torchrun.
OF_LAUNCHERS = {"--allow-run-as-root", "--bind-to", "--mpi", "--no-python", "--nproc-per-node", "--oversubscribe"}

# The script that runs experiments has the options of bench: docs/measuring.md.
HAS_OWN_PAGE = "bench"


def help_of(*subcommand):
    result = run(*subcommand, "--help")
    assert result.returncode == 0, result.stderr
    return result.stdout


def subcommands():
    listed = help_of().split("Subcommands:")[1]
    return re.findall(r"^  ([a-z]+)", listed, re.MULTILINE)


def options():
    """By name, the subcommands that have it."""
    found = {"--help": set()}
    for subcommand in set(subcommands()) - {HAS_OWN_PAGE}:
        for name in re.findall(r"^  (?:-\w,)?(--[a-z-]+)", help_of(subcommand), re.MULTILINE):
            found.setdefault(name, set()).add(subcommand)
    return found


class Reference(unittest.TestCase):
    def setUp(self):
        self.page = PAGE.read_text()
        self.named = set(re.findall(OPTION, self.page))

    def test_has_every_subcommand(self):
        for subcommand in subcommands():
            mentioned = re.search(rf"`{subcommand}\b|^## {subcommand}$", self.page, re.MULTILINE)
            self.assertTrue(mentioned, subcommand)

    def test_has_every_option(self):
        self.assertEqual(set(options()) - self.named - set(NOT_ON_THE_PAGE), set())

    def test_has_no_other_options(self):
        self.assertEqual(self.named - set(options()) - OF_LAUNCHERS, set())

    def test_exceptions_exist_and_are_needed(self):
        found = options()
        for name, having in NOT_ON_THE_PAGE.items():
            self.assertTrue(having <= found.get(name, set()), name)
        self.assertTrue(OF_LAUNCHERS <= self.named, OF_LAUNCHERS - self.named)


if __name__ == "__main__":
    unittest.main()
