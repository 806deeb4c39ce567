"""Signals in the middle of writing: what is unfinished goes, what was there before stays."""

import os
import signal
import unittest

import job
from case import RANKS, FaultCase

LONG = {"action": "sleep", "value": 120_000, "times": 1}
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOCK = ".safeshuffle.lock"


def saved_name(rank):
    return f"model-rank-{rank}-part-0.safetensors"


def hidden(directory):
    return list(directory.glob(".*.safeshuffle-*-*"))


def size_of(descriptor):
    try:
        return descriptor.stat().st_size
    except OSError:  # closed meanwhile
        return 0


class SavingCase(FaultCase):
    GRACE_SECONDS = None  # to clean up

    def setUp(self):
        super().setUp()
        # Past the header.
        self.slow = LONG | {"call": "pwrite", "path": self.saved, "from": 1024}

    def is_being_written(self, ranks):
        """All ranks have begun, and one of them stays there."""
        files = [file for file in job.open_files(self.saved) if file.readlink().name != LOCK]
        return sum(size_of(file) > 0 for file in files) == ranks


class Interrupted(SavingCase):
    def interrupt(self, number, until, *options, ranks, faults, alone=False, directly=None):
        """Sends the signal once `until()` holds: to the launcher, but to the command itself if
        `alone`, and to so many ranks if `directly`, which the launcher then gives time to end."""
        started = job.Job(ranks, *self.load_command(), *options, faults=faults, alone=alone,
                          grace_seconds=5 if directly else None)  # fmt: skip
        self.assertTrue(job.wait_until(until))
        launcher = started.process.pid
        ranks_only = [rank for rank in job.processes_with(self.work) if rank != launcher]
        for process in ranks_only[:directly] if directly else [launcher]:
            os.kill(process, number)
        result = started.end()
        self.assert_nobody_left()
        self.assertLess(result.seconds, 100)
        return result

    def drop_from_page_cache(self):
        for path in self.model.iterdir():
            with path.open("rb") as file:
                os.fsync(file)
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def test_saving_alone(self):
        for number in ENDING:
            with self.subTest(signal=number):
                result = self.interrupt(number, lambda: self.is_being_written(1), "--save-sharded",
                                        self.saved, "--report", self.work / "report", ranks=1,
                                        faults=[self.slow], alone=True)  # fmt: skip
                self.assertEqual(result.code, -number)
                self.assertEqual(os.listdir(self.work), ["model"])

    def test_saving_on_several_ranks(self):
        """The launcher may kill the ranks at the moment of the signal."""
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                result = self.interrupt(number, lambda: self.is_being_written(RANKS),
                                        "--save-sharded", self.saved, ranks=RANKS,
                                        faults=[self.slow])  # fmt: skip
                self.assertNotEqual(result.code, 0)
                self.assert_nothing_saved(killed=True)

    def test_between_publishing_and_committing(self):
        """All have their final names but wait for rank 1: all earlier files come back. Needs
        half a second, which the launcher may not give its ranks when it gets the signal."""
        self.saved.mkdir()
        earlier = {saved_name(rank): f"earlier {rank}".encode() for rank in range(RANKS)}
        for name, data in earlier.items():
            (self.saved / name).write_bytes(data)
        slow = LONG | {"rank": 1, "call": "open", "path": self.saved, "flags": os.O_DIRECTORY}
        self.interrupt(signal.SIGTERM, self.is_published, "--save-sharded", self.saved,
                       ranks=RANKS, faults=[slow], directly=RANKS)  # fmt: skip
        left = {path.name: path.read_bytes() for path in self.saved.iterdir()}
        self.assertEqual(left, earlier)

    def is_published(self):
        return len(list(self.saved.glob(".*.safeshuffle-old-*"))) == RANKS

    def test_loading_ends_promptly(self):
        """While threads read into slabs, and while the main one packs from the page cache, too. In
        order if the signal comes before the slow read."""
        slow = LONG | {"call": "pread", "path": ".safetensors", "from": 1024}
        marker = self.work / "report"
        for prepare in (lambda: None, self.drop_from_page_cache):
            for number in ENDING:
                prepare()
                result = self.interrupt(number, lambda: job.open_files(self.work),
                                        "--report", marker, ranks=1, faults=[slow],
                                        alone=True)  # fmt: skip
                self.assertIn(result.code, (-number, 128 + number))
                self.assertEqual(os.listdir(self.work), ["model"])

    def test_a_slow_load_is_cancelled(self):
        """Each read takes a moment: there is time to end in order. One rank tells the others."""
        slow = {"action": "sleep", "value": 100, "call": "pread", "path": ".safetensors", "from": 1024}
        one_by_one = ("--threads", 1, "--chunk", 4096, "--report", self.work / "report")
        for ranks, alone in ((1, True), (RANKS, False)):
            for number in (signal.SIGINT, signal.SIGTERM):
                with self.subTest(ranks=ranks, signal=number):
                    self.drop_from_page_cache()  # what is packed from there takes a whole wave
                    result = self.interrupt(number, lambda: job.open_files(self.work), *one_by_one,
                                            ranks=ranks, faults=[slow], alone=alone,
                                            directly=None if alone else 1)  # fmt: skip
                    self.assertEqual(result.code, 128 + number, result.errors)
                    if alone:  # a launcher may not wait for the message
                        self.assert_fails(result, 128 + number, "the call was cancelled")
                    self.assertEqual(os.listdir(self.work), ["model"])

    def test_an_ignored_signal_stays_so(self):
        slow = self.slow | {"value": 3000}
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # inherited, as from nohup
        self.addCleanup(signal.signal, signal.SIGHUP, before)
        result = self.interrupt(signal.SIGHUP, lambda: self.saved.exists(), "--save-sharded",
                                self.saved, ranks=1, faults=[slow], alone=True)  # fmt: skip
        self.assertEqual(result.code, 0, result.errors)
        self.assertEqual(os.listdir(self.saved), [saved_name(0)])

    def test_making(self):
        made = self.work / "new" / "made"
        started = job.Job(1, "make", made, "--like", "llama-2-70b", "--scale", "0.0001", alone=True,
                          faults=[LONG | {"call": "pwrite", "path": "made", "from": 50_000}])  # fmt: skip
        self.assertTrue(job.wait_until(lambda: made.exists() and job.open_files(made)))
        started.process.send_signal(signal.SIGINT)
        self.assertEqual(started.end().code, -signal.SIGINT)
        self.assertEqual(os.listdir(self.work), ["model"])


class Killed(SavingCase):
    """By a signal that nobody can catch, which leaves everything where it is."""

    def kill_all(self, until, faults):
        started = job.Job(RANKS, *self.load_command(), "--save-sharded", self.saved, faults=faults)
        self.assertTrue(job.wait_until(until))
        for process in job.processes_with(self.work):
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        started.end()
        self.assert_nobody_left()

    def save_again(self, ranks):
        result = self.load("--save-sharded", self.saved, ranks=ranks)
        self.assertEqual(result.code, 0, result.errors)
        self.assertEqual(sorted(os.listdir(self.saved)), [saved_name(rank) for rank in range(ranks)])

    def test_while_writing(self):
        self.kill_all(lambda: self.is_being_written(RANKS), [self.slow])
        self.assert_nothing_saved(killed=True)
        self.assertEqual(len(hidden(self.saved)), RANKS)
        self.save_again(ranks=2)

    def test_while_publishing(self):
        self.save_again(RANKS)
        slow = LONG | {"call": "open", "path": self.saved, "flags": os.O_DIRECTORY}
        self.kill_all(lambda: len(list(self.saved.glob(".*.safeshuffle-old-*"))) == RANKS, [slow])
        self.assertNotEqual(hidden(self.saved), [])
        self.save_again(RANKS)

    def test_an_only_copy_is_put_back(self):
        """Without hard links the earlier file has, for a moment, no name but the hidden one."""
        self.save_again(RANKS)
        earlier = (self.saved / saved_name(1)).rename(
            self.saved / f".{saved_name(1)}.safeshuffle-old-{8 * '0'}")
        data = earlier.read_bytes()
        full = {"call": "statvfs", "action": "full", "value": 0}
        result = self.load("--save-sharded", self.saved, faults=[full])
        self.assert_fails(result, 3, "but only 0 are free")
        self.assertEqual((self.saved / saved_name(1)).read_bytes(), data)
        self.assertEqual(hidden(self.saved), [])


if __name__ == "__main__":
    unittest.main()
