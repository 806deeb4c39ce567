"""Ranks that are plain processes, with GPUs and without MPI: they meet, load, and fail
together, or lose one another.

Environment, beyond that of plain_ranks.py: TIMEOUT_SECONDS, which must be longer than NCCL takes to
connect, and PHASES, to lose ranks in some of them only; both optional.
"""

import errno
import os
import unittest
from unittest import mock

import job
import model
import plain_ranks
from case import LOAD_OPTIONS, SAVED, FaultCase

TIMEOUT_SECONDS = int(os.environ.get("TIMEOUT_SECONDS", "3"))
MEETING_SECONDS = min(TIMEOUT_SECONDS, 5)  # NCCL has no part in it
RANKS = 3
LOST = 2
SIGKILL = -9

# The call in which the lost rank stays.
PHASES = {
    "open": {"call": "pread", "path": model.file_name(LOST), "thread": "main"},
    "exchange": {"call": "pread", "path": ".safetensors", "thread": "worker", "from": model.WINDOW},
    "save": {"call": "pwrite", "path": SAVED, "from": 1024},
}
CHOSEN = os.environ.get("PHASES", " ".join(PHASES)).split()


class WithoutMpi(FaultCase):
    def setUp(self):
        super().setUp()
        self.address = self.enterContext(plain_ranks.tcp_address())

    def load_plainly(self, ranks, *options, timeout=TIMEOUT_SECONDS, **how):
        address = how.pop("address", self.address)
        return plain_ranks.run(
            ranks, address, *self.load_command(), "--timeout", timeout, *options, **how
        )

    def saved_files(self):
        """Under their final names: {name: bytes}."""
        saved = self.saved.iterdir() if self.saved.exists() else []
        return {path.name: path.read_bytes() for path in saved if not path.name.startswith(".")}

    def assert_failed(self, result, codes, *words):
        """One message with all these words, and one of these exit codes."""
        self.assertIn(result.code, codes, result.errors)
        self.assertEqual(len(result.messages), 1, result.errors)
        for word in words:
            self.assertIn(word, result.messages[0])


class Loads(WithoutMpi):
    def save_over_mpi_on_the_host(self, ranks):
        command = [*self.load_command(), "--device", "host", "--save-sharded", self.saved]
        result = job.run(ranks, *command)
        self.assertEqual(result.code, 0, result.errors)
        return self.saved_files()

    def save_plainly(self, ranks):
        results = self.load_plainly(ranks, *LOAD_OPTIONS, "--verify", "full", "--save-sharded",
                                    self.saved)  # fmt: skip
        for result in results.values():
            self.assertEqual(result.code, 0, result.errors)
        self.assertIn(f"onto {ranks} rank", results[0].output)
        self.assertNotIn("device host", results[0].output)
        return self.saved_files()

    def test_same_bytes_as_over_mpi_on_the_host(self):
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                expected = self.save_over_mpi_on_the_host(ranks)
                self.assertEqual(len(expected), ranks)
                self.saved = self.work / f"saved by {ranks} without MPI"
                self.assertEqual(self.save_plainly(ranks), expected)
                self.saved = self.work / f"saved by more than {ranks}"

    def test_peers_that_do_not_part(self):
        """As one that is stopped: NCCL waits for it for ever, the process does not."""
        stuck = {"SIMULATED_NCCL_PARTING": "stuck"}
        for result in self.load_plainly(2, *LOAD_OPTIONS, environment=stuck).values():
            self.assertEqual(result.code, 0, result.errors)

    def test_meet_as_torchrun_has_it(self):
        """At the port after the one that torchrun itself listens at."""
        host, port = self.address.removeprefix("tcp://").split(":")
        told = {"MASTER_ADDR": host, "MASTER_PORT": str(int(port) - 1)}
        told["SAFESHUFFLE_RENDEZVOUS"] = ""
        for result in self.load_plainly(2, *LOAD_OPTIONS, environment=told).values():
            self.assertEqual(result.code, 0, result.errors)

    def test_mpirun_only_starts_ranks_that_are_told_where_to_meet(self):
        with mock.patch.dict(os.environ, {"SAFESHUFFLE_RENDEZVOUS": self.address}):
            result = job.run(2, *self.load_command(), *LOAD_OPTIONS)
        self.assertEqual(result.code, 0, result.errors)
        self.assertIn("transport nccl+tcp,", result.output)

    def test_data_unreadable_on_one_rank(self):
        """An error that all ranks have, and of which the first speaks."""
        fault = {
            "rank": 1, "call": "pread", "path": model.file_name(1), "thread": "worker",
            "action": "errno", "value": errno.EIO,
        }  # fmt: skip
        results = self.load_plainly(RANKS, *LOAD_OPTIONS, faults=[fault])
        self.assertEqual([result.code for result in results.values()], [3] * RANKS)
        self.assert_failed(results[0], {3}, "rank 1: ", model.file_name(1), "Input/output error")
        self.assertEqual(results[1].messages + results[2].messages, [])


class NoGpu(WithoutMpi):
    """Some ranks see no GPU: what one of them has to say, all say, and at once."""

    def assert_same_failure(self, *blind):
        hidden = {"CUDA_VISIBLE_DEVICES": "", "SIMULATED_GPUS": "0"}
        results = self.load_plainly(
            RANKS, *LOAD_OPTIONS, timeout=job.LAUNCH_TIMEOUT_SECONDS,
            own=dict.fromkeys(blind, hidden),
        )  # fmt: skip
        for result in results.values():
            self.assert_failed(result, {6}, "no GPU is visible")
            self.assertEqual(result.messages, results[0].messages)
            self.assertLess(result.seconds, job.SLACK_SECONDS)
        self.assertIn(results[0].messages[0].split(":")[0], [f"rank {rank}" for rank in blind])
        self.assert_nobody_left()

    def test_one_rank(self):
        for blind in range(RANKS):
            with self.subTest(blind=blind):
                self.assert_same_failure(blind)

    def test_two_ranks(self):
        self.assert_same_failure(1, 2)


class LostRank(WithoutMpi):
    def test_never_started(self):
        results = self.load_plainly(RANKS, *LOAD_OPTIONS, absent=[LOST], timeout=MEETING_SECONDS)
        for result in results.values():
            self.assert_failed(result, {9}, f"rank {LOST}")
            self.assert_in_time(result)
        self.assert_nobody_left()

    def test_killed(self):
        for phase in CHOSEN:
            with self.subTest(phase=phase):
                self.assertEqual(self.lose("kill", phase).code, SIGKILL)

    def test_stopped(self):
        for phase in CHOSEN:
            with self.subTest(phase=phase):
                self.lose("stop", phase)

    def lose(self, action, phase):
        """Returns what became of the lost rank, which all others name."""
        fault = PHASES[phase] | {"rank": LOST, "action": action, "times": 1}
        results = self.load_plainly(
            RANKS, *LOAD_OPTIONS, "--save-sharded", self.saved, faults=[fault], lost=[LOST]
        )
        lost = results.pop(LOST)
        # NCCL may report the loss to a rank as some other failure. That rank then leaves without naming anyone, and
        # others may miss it first.
        unnamed = phase == "exchange" and 6 in [result.code for result in results.values()]
        for result in results.values():
            self.assert_failed(result, {6, 9} if unnamed else {9}, "" if unnamed else f"rank {LOST}: ")
            self.assert_in_time(result)
        self.assert_nobody_left()
        self.assertEqual(self.saved_files(), {})
        return lost

    def assert_in_time(self, result):
        self.assertLess(result.seconds, TIMEOUT_SECONDS + job.SLACK_SECONDS)


class OnTheHost(WithoutMpi):
    """Where every rank reads all that it keeps."""

    OPTIONS = "--device", "host", "--verify", "full"

    def test_loads(self):
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                self.saved = self.work / f"saved by {ranks} over MPI"
                expected = Loads.save_over_mpi_on_the_host(self, ranks)
                self.saved = self.work / f"saved by {ranks} without MPI"
                results = self.load_plainly(ranks, *self.OPTIONS, "--save-sharded", self.saved)
                self.assertEqual([result.code for result in results.values()], [0] * ranks)
                self.assertEqual(self.saved_files(), expected)
                transport = "self" if ranks == 1 else "none+tcp"
                self.assertIn(f"device host, transport {transport},", results[0].output)

    def test_streams(self):
        for result in self.load_plainly(RANKS, *self.OPTIONS, "--stream", "1MiB").values():
            self.assertEqual(result.code, 0, result.errors)

    def test_nothing_can_be_exchanged(self):
        results = self.load_plainly(RANKS, *self.OPTIONS, "--assign", "round-robin")
        self.assertEqual([result.code for result in results.values()], [2] * RANKS)
        self.assert_failed(results[0], {2}, "round-robin", "--assign sliced")

    def test_lost_rank(self):
        for action in ("kill", "stop"):
            with self.subTest(action=action):
                fault = PHASES["exchange"] | {"rank": LOST, "action": action, "times": 1}
                results = self.load_plainly(
                    RANKS, *self.OPTIONS, "--direct", "on", faults=[fault], lost=[LOST]
                )
                results.pop(LOST)
                for result in results.values():
                    self.assert_failed(result, {9}, f"rank {LOST}: ")
                self.assert_nobody_left()


class Usage(WithoutMpi):

    def test_directories_are_no_rendezvous(self):
        address = f"file://{self.work}/meeting"
        for result in self.load_plainly(2, *LOAD_OPTIONS, address=address).values():
            self.assert_failed(result, {2}, f"'{address}' is a path", "use tcp://HOST:PORT")

    def test_a_rank_that_is_no_number(self):
        for result in self.load_plainly(2, *LOAD_OPTIONS, environment={"RANK": "two"}).values():
            self.assert_failed(result, {2}, "RANK is 'two', which is not a number")

    def test_a_rank_outside_the_group(self):
        result = self.load_plainly(2, *LOAD_OPTIONS, absent=[0], environment={"RANK": "2"})[1]
        self.assert_failed(result, {2}, "RANK is 2, but must be less than WORLD_SIZE, which is 2")

    def test_no_group_size(self):
        results = self.load_plainly(2, *LOAD_OPTIONS, environment={"WORLD_SIZE": ""})
        for result in results.values():
            self.assert_failed(result, {2}, "WORLD_SIZE")


if __name__ == "__main__":
    unittest.main()
