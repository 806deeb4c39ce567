"""Every kind of failure has its exit code, which mpirun passes on, and one message for all ranks."""

import errno
import os
import unittest
from unittest import mock

import job
import model
from case import RANKS, FaultCase

# Becomes the command; rank 2 with other arguments, which the shell takes from OTHER.
OTHER_RANK = 2
WRAPPER = f"""\
if [ "$OMPI_COMM_WORLD_RANK" = {OTHER_RANK} ]; then exec $OTHER; fi
exec "$@"
"""


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


class OneRankFails(FaultCase):
    """Before it has joined the others, because it was given other arguments."""

    GRACE_SECONDS = None  # as for lost ranks

    def load_with_other(self, *arguments):
        wrapper = self.work / "wrapper"
        wrapper.write_text(WRAPPER, encoding="utf-8")
        other = " ".join(map(str, (os.environ["SAFESHUFFLE"], *arguments)))
        launcher = f"{os.environ['MPIEXEC']} sh {wrapper}"
        with mock.patch.dict(os.environ, {"MPIEXEC": launcher, "OTHER": other}):
            return self.load("--timeout", 1)

    def assert_all_end(self, code, arguments, *words):
        result = self.load_with_other(*arguments)
        self.assert_fails(result, code, f"rank {OTHER_RANK}: ", *words)
        self.assertLess(result.seconds, job.SLACK_SECONDS)

    def test_unknown_option(self):
        self.assert_all_end(2, ["load", self.model, "--no-such-option"], "--no-such-option")

    def test_bad_value(self):
        self.assert_all_end(2, ["load", self.model, "--timeout", "soon"], "--timeout")

    def test_options_that_exclude_each_other(self):
        self.assert_all_end(2, ["load", self.model, "--device", "host", "--gpu", "0"], "--gpu")

    def test_other_steps_and_outputs(self):
        for option in (["--verify", "full"], ["--save-sharded", self.saved],
                       ["--report", self.work / "report"]):  # fmt: skip
            with self.subTest(option):
                self.assert_all_end(2, ["load", self.model, *option],
                                    "was given different options from rank 0")  # fmt: skip
                self.assertFalse(self.saved.exists())

    def test_no_subcommand(self):
        self.assert_all_end(2, [], "subcommand")

    def test_another_subcommand_that_fails(self):
        self.assert_all_end(3, ["inspect", self.work / "nothing"], str(self.work / "nothing"))

    def test_another_subcommand(self):
        """Which ends well, without MPI: the others never learn more than that it is not there."""
        result = self.load_with_other("--version")
        self.assertIn(result.code, {1, 9}, result.errors)  # 1: Open MPI has noticed it itself
        self.assertLessEqual(len(result.messages), 1, result.errors)
        self.assert_nobody_left()


if __name__ == "__main__":
    unittest.main()
