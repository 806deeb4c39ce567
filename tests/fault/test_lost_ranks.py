"""A rank that dies or stops, in every phase: the others end soon, and with them the job."""

import unittest

import job
import model
from case import FaultCase

LOST = 2
TIMEOUT_SECONDS = 3
FILE = model.file_name(LOST)
RUN_TAG = 3  # of the messages that carry tensors

# The call in which the lost rank stays.
PHASES = {
    "open": {"call": "pread", "path": FILE, "thread": "main"},
    "read": {"call": "pread", "path": FILE, "thread": "worker"},
    "exchange": {"call": "send", "from": RUN_TAG},
    "verify": {"call": "pread", "path": ".safetensors", "thread": "main", "from": 1024},
    "save": {"call": "pwrite", "path": f"model-rank-{LOST}", "from": 1024},
    "commit": {"call": "rename", "path": f"model-rank-{LOST}"},
}


class LostRank(FaultCase):
    def lose(self, rank, phase, action):
        fault = PHASES[phase] | {"rank": rank, "action": action, "times": 1}
        return self.load(
            "--timeout", TIMEOUT_SECONDS, "--verify", "full", "--save-sharded", self.saved,
            faults=[fault],
        )  # fmt: skip

    def assert_ended(self, result):
        self.assertLess(result.seconds, TIMEOUT_SECONDS + job.SLACK_SECONDS)
        self.assert_nobody_left()
        saved = self.saved.iterdir() if self.saved.exists() else []
        final = [path.name for path in saved if not path.name.startswith(".")]
        self.assertEqual(final, [])

    def test_stopped(self):
        for phase in PHASES:
            with self.subTest(phase=phase):
                result = self.lose(LOST, phase, "stop")
                self.assert_fails(result, 9, f"rank {LOST}", "3 s")
                self.assert_ended(result)

    def test_killed(self):
        for phase in PHASES:
            with self.subTest(phase=phase):
                result = self.lose(LOST, phase, "kill")
                self.assertNotEqual(result.code, 0)
                self.assert_ended(result)

    def test_rank_0_stopped(self):
        """Another rank speaks then."""
        fault = {"rank": 0, "call": "send", "from": RUN_TAG, "action": "stop", "times": 1}
        result = self.load("--timeout", TIMEOUT_SECONDS, faults=[fault])
        self.assert_fails(result, 9, "rank 0")
        self.assert_ended(result)


if __name__ == "__main__":
    unittest.main()
