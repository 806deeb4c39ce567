"""What all fault tests share: a checkpoint, a load of it, and a look at what is left behind.

Environment, beyond that of job.py: LOAD_OPTIONS, of every load, such as "--device cuda"; optional.
"""

import os
import tempfile
import unittest
from pathlib import Path

import job
import model

RANKS = 4
SAVED = "saved"  # the directory
LOAD_OPTIONS = os.environ.get("LOAD_OPTIONS", "").split()


class FaultCase(unittest.TestCase):
    # Ranks that fail together part in MPI_Finalize: when the first has ended, all have said what they had to.
    GRACE_SECONDS = 0

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="safeshuffle-fault-")
        self.work = Path(self.enterContext(directory))
        self.model = self.work / "model"
        self.rules = model.write(self.model)
        self.saved = self.work / SAVED

    def load(self, *options, faults=(), ranks=RANKS):
        return job.run(ranks, *self.load_command(), *LOAD_OPTIONS, *options, faults=faults,
                       grace_seconds=self.GRACE_SECONDS)  # fmt: skip

    def load_command(self):
        return ["load", self.model, "--tp-plan", self.rules, "--window", model.WINDOW,
                "--progress", "none"]  # fmt: skip

    def assert_fails(self, result, code, *words):
        """One message, with all these words, the exit code that belongs to it, and nobody left."""
        self.assertEqual(result.code, code, result.errors)
        self.assertEqual(len(result.messages), 1, result.errors)
        for word in words:
            self.assertIn(word, result.messages[0])
        self.assert_nobody_left()

    def assert_nobody_left(self):
        self.assertTrue(job.wait_until_gone(self.work), job.processes_with(self.work))

    def assert_nothing_saved(self, killed=False):
        """Ranks that were killed may leave hidden files."""
        left = os.listdir(self.saved) if self.saved.exists() else []
        self.assertEqual([name for name in left if not (killed and name.startswith("."))], [])
