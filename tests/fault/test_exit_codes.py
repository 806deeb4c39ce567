"""Every kind of failure has its exit code, which mpirun passes on, and one message for all ranks."""

import errno
import os
import unittest

import job
import model
from case import RANKS, FaultCase


class ExitCodes(FaultCase):
    def test_usage(self):
        result = job.run(RANKS, "load", self.model, "--no-such-option")
        self.assertEqual(result.code, 2)
        self.assertEqual(result.errors.count("--no-such-option"), 1, result.errors)
        self.assert_nobody_left()

    def test_config(self):
        self.rules.write_text("{}", encoding="utf-8")
        self.assert_fails(self.load(), 2, "rank 0: ", "rules.json")

    def test_missing_checkpoint(self):
        result = job.run(RANKS, "load", self.work / "nothing")
        self.assert_fails(result, 3, "rank 0: ", str(self.work / "nothing"))

    def test_malformed(self):
        path = self.model / model.file_name(1)
        path.write_bytes(path.read_bytes()[:5])
        self.assert_fails(self.load(), 4, str(path))

    def test_plan(self):
        result = self.load(ranks=5)
        self.assert_fails(result, 5, "cut.0.weight", "24", "5")

    def test_memory(self):
        result = self.load("--memory-budget", "64KiB")
        self.assert_fails(result, 7, "weight", "65536")

    def test_verification(self):
        """One bit is wrong in what rank 1 reads for the load; reading again finds it."""
        flip = {
            "rank": 1, "call": "pread", "path": model.file_name(1), "thread": "worker",
            "action": "flip", "times": 1,
        }  # fmt: skip
        result = self.load("--verify", "full", "--threads", 1, faults=[flip])
        self.assert_fails(result, 8, "rank ", model.file_name(1), "cut.1.weight", "element", "byte")

    def test_fallback(self):
        refuse = {
            "rank": 3, "call": "open", "path": ".safetensors", "flags": os.O_DIRECT,
            "action": "errno", "value": errno.EINVAL,
        }  # fmt: skip
        options = ["--direct", "on", "--io", "posix"]
        self.assertEqual(self.load(*options, faults=[refuse]).code, 0)
        result = self.load(*options, "--strict", faults=[refuse])
        self.assert_fails(result, 10, "strict", model.file_name(3))


if __name__ == "__main__":
    unittest.main()
