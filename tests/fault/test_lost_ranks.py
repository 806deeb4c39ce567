"""A rank that dies or stops, in every phase: the others end soon, and with them the job."""

import unittest

import job
import model
from case import LOAD_OPTIONS, RANKS, SAVED, FaultCase

LOST = 2
TIMEOUT_SECONDS = 3
FILE = model.file_name(LOST)
RUN_TAG = 3  # of the messages that carry tensors

# Over MPI a rank is lost while it sends its tensors; over NCCL, while it reads what it would send
# next, so that the others wait for it within an exchange.
EXCHANGE_OVER_MPI = {"call": "send", "from": RUN_TAG}
EXCHANGE_OVER_NCCL = {"call": "pread", "path": ".safetensors", "thread": "worker",
                      "from": model.WINDOW}  # fmt: skip

# The call in which the lost rank stays.
PHASES = {
    "meet": {"call": "send"},
    "open": {"call": "pread", "path": FILE, "thread": "main"},
    "read": {"call": "pread", "path": FILE, "thread": "worker"},
    "exchange": EXCHANGE_OVER_NCCL if "cuda" in LOAD_OPTIONS else EXCHANGE_OVER_MPI,
    "verify": {"call": "pread", "path": ".safetensors", "thread": "main", "from": 1024},
    "save": {"call": "pwrite", "path": SAVED, "from": 1024},
}
COMMIT = {"commit": {"call": "rename", "path": f"model-rank-{LOST}"}}

# In MPI itself, which does not say who is missing, and may take some time at least.
MPI_SECONDS = 10
IN_MPI = {
    "start": ({"call": "init"}, "starting MPI", MPI_SECONDS),
    "join": ({"call": "duplicate"}, "duplicating the MPI communicator", TIMEOUT_SECONDS),
    "end": ({"call": "finalize"}, "ending MPI", MPI_SECONDS),
}


class LostRank(FaultCase):
    GRACE_SECONDS = None  # it is for the ranks to end well, and for one of them to speak

    def lose(self, rank, phase, action):
        return self.lose_in((PHASES | COMMIT)[phase], rank, action)

    def lose_in(self, call, rank, action):
        return self.load(
            "--timeout", TIMEOUT_SECONDS, "--verify", "full", "--save-sharded", self.saved,
            faults=[call | {"rank": rank, "action": action, "times": 1}],
        )  # fmt: skip

    def assert_ended(self, result, limit=TIMEOUT_SECONDS):
        self.assertLess(result.seconds, limit + job.SLACK_SECONDS)
        self.assert_nobody_left()

    def saved_files(self):
        """Under their final names."""
        saved = list(self.saved.iterdir()) if self.saved.exists() else []
        return [path for path in saved if not path.name.startswith(".")]


class Stopped(LostRank):
    def test_stopped(self):
        for phase in PHASES:
            with self.subTest(phase=phase):
                result = self.lose(LOST, phase, "stop")
                self.assert_fails(result, 9, f"rank {LOST}: ", "no answer within 3 s")
                self.assert_ended(result)
                self.assertEqual(self.saved_files(), [])

    def test_rank_0_stopped(self):
        """Another rank speaks then."""
        result = self.lose(0, "exchange", "stop")
        self.assert_fails(result, 9, "rank 0: ")
        self.assert_ended(result)


class StoppedAtTheEdges(LostRank):
    def test_stopped_in_mpi(self):
        for phase, (call, words, limit) in IN_MPI.items():
            with self.subTest(phase=phase):
                result = self.lose_in(call, LOST, "stop")
                self.assert_fails(result, 9, words, f" {limit} s")
                self.assert_ended(result, limit)

    def test_stopped_at_different_moments(self):
        """The ranks that are left give up one after the other, rank 0 not as the first."""
        begin = PHASES["exchange"].get("from") if "cuda" in LOAD_OPTIONS else 0  # of the same wave
        late = [PHASES["read"] | {"path": model.file_name(rank), "rank": rank, "from": begin,
                                  "action": "sleep", "value": milliseconds, "times": 1}
                for rank, milliseconds in ((0, 1010), (3, 2000))]  # fmt: skip
        stop = PHASES["exchange"] | {"rank": LOST, "action": "stop", "times": 1}
        result = self.load("--timeout", TIMEOUT_SECONDS, faults=[stop, *late])
        self.assert_fails(result, 9, f"rank {LOST}: ", "no answer within 3 s")
        self.assert_ended(result)

    def test_stopped_between_the_renames(self):
        """The others take their files back; the stopped rank may be woken up before it is ended."""
        result = self.lose(LOST, "commit", "stop")
        self.assert_fails(result, 9, f"rank {LOST}: ")
        self.assert_ended(result)
        for path in self.saved_files():
            self.assertEqual(path.name, f"model-rank-{LOST}-part-0.safetensors")


class Killed(LostRank):
    def test_killed(self):
        for phase in PHASES:
            with self.subTest(phase=phase):
                result = self.lose(LOST, phase, "kill")
                self.assertNotEqual(result.code, 0)
                self.assert_ended(result)
                self.assertEqual(self.saved_files(), [])

    def test_killed_between_the_renames(self):
        """The launcher kills the others with it: what has its final name then is at least whole."""
        result = self.lose(LOST, "commit", "kill")
        self.assertNotEqual(result.code, 0)
        self.assert_ended(result)
        shard = model.ROWS * model.COLUMNS * model.FILES // RANKS + model.COLUMNS * model.FILES
        for path in self.saved_files():
            data = path.read_bytes()
            header = 8 + int.from_bytes(data[:8], "little")
            self.assertEqual(len(data) - header, shard)


class HangingStorage(LostRank):
    def test_storage_hangs_on_one_rank(self):
        hang = PHASES["read"] | {"rank": LOST, "action": "sleep", "value": 60_000}
        result = self.load("--timeout", TIMEOUT_SECONDS, faults=[hang])
        self.assert_fails(result, 9, f"rank {LOST}: reading wave 0: no progress within 3 s")
        self.assert_ended(result)

    def test_storage_hangs_while_a_peer_is_lost(self):
        """Giving up on the peer must not end in waiting for the storage."""
        data = PHASES["read"] | {"from": 8}  # not a header: each rank has two
        stop = data | {"rank": 1, "path": model.file_name(1), "action": "stop", "times": 1}
        hang = data | {"rank": 0, "path": model.file_name(0), "from": model.WINDOW}
        hang |= {"action": "sleep", "value": 60_000}
        result = self.load("--timeout", TIMEOUT_SECONDS, "--threads", 1, "--direct", "off", ranks=2,
                           faults=[stop, hang])  # fmt: skip
        self.assert_fails(result, 9, "rank 1: ")
        self.assert_ended(result)


class SlowRank(FaultCase):
    """A rank that takes longer than the time-out, but is at work, is waited for."""

    def assert_waited_for(self, **fault):
        slow = fault | {"rank": LOST, "action": "sleep", "value": 800}
        result = self.load("--timeout", TIMEOUT_SECONDS, "--verify", "full", "--save-sharded",
                           self.saved, faults=[slow])  # fmt: skip
        self.assertEqual(result.code, 0, result.errors)
        self.assertGreater(result.seconds, TIMEOUT_SECONDS + 1)

    def test_verifying(self):
        self.assert_waited_for(**PHASES["verify"])

    def test_saving(self):
        self.assert_waited_for(**PHASES["save"])


if __name__ == "__main__":
    unittest.main()
