"""Files that fail while they are read or written: all ranks report the one error."""

import errno
import json
import os
import unittest

import job
import model
from case import LOAD_OPTIONS, RANKS, FaultCase

FILE = model.file_name(2)  # read by rank 2
DATA = 1024  # past every header


def saved_name(rank):
    return f"model-rank-{rank}-part-0.safetensors"


class Reading(FaultCase):
    def test_no_fault(self):
        result = self.load("--verify", "full", "--save-sharded", self.saved)
        self.assertEqual(result.code, 0, result.errors)
        self.assertEqual(len(list(self.saved.iterdir())), RANKS)

    def test_short_reads_are_completed(self):
        short = {"call": "pread", "path": ".safetensors", "action": "short"}
        result = self.load("--verify", "full", faults=[short])
        self.assertEqual(result.code, 0, result.errors)

    def test_header_unreadable_on_one_rank(self):
        self.fail_read("cannot read: Input/output error", "byte 0", thread="main")

    def test_data_unreadable_on_one_rank(self):
        self.fail_read("cannot read: Input/output error", "byte ", thread="worker")

    def fail_read(self, *words, **where):
        fault = {"rank": 2, "call": "pread", "path": FILE, "action": "errno", "value": errno.EIO}
        result = self.load(faults=[fault | where])
        self.assert_fails(result, 3, "rank 2: ", str(self.model / FILE), *words)

    def test_header_not_permitted_on_one_rank(self):
        self.fail_open(skip=0)

    def test_data_not_permitted_on_one_rank(self):
        self.fail_open(skip=1)

    def fail_open(self, skip):
        fault = {
            "rank": 2, "call": "open", "path": FILE, "skip": skip,
            "action": "errno", "value": errno.EACCES,
        }  # fmt: skip
        result = self.load(faults=[fault])
        self.assert_fails(result, 3, "rank 2: ", FILE, "cannot open: Permission denied")

    def test_two_failing_ranks_report_the_lower_one(self):
        fault = {"call": "pread", "path": ".safetensors", "thread": "worker"}
        fault |= {"action": "errno", "value": errno.EIO}
        result = self.load(faults=[fault | {"rank": 3}, fault | {"rank": 1}])
        self.assert_fails(result, 3, "rank 1: ", model.file_name(1))

    def test_file_shrinks_after_its_header_was_read(self):
        fault = {
            "rank": 2, "call": "pread", "path": FILE, "thread": "worker",
            "action": "truncate", "value": 5000, "times": 1,
        }  # fmt: skip
        # Another thread might open the file only now, and see that it changed.
        result = self.load("--threads", 1, faults=[fault])
        self.assert_fails(result, 3, "rank 2: ", FILE, "file ended early", "byte 5000")

    def test_file_is_touched_while_it_is_read(self):
        size = (self.model / FILE).stat().st_size
        fault = {
            "rank": 2, "call": "pread", "path": FILE, "thread": "worker",
            "action": "truncate", "value": size, "times": 1,
        }  # fmt: skip
        result = self.load(faults=[fault])
        self.assert_fails(result, 3, "rank 2: ", FILE, "file changed since its header was read")


class Stopping(FaultCase):
    """After an error no rank loads on."""

    WINDOW = 4096
    WAVES = model.ROWS * model.COLUMNS // WINDOW
    WAVE_OF_ERROR = 5

    def load_command(self):
        return ["load", self.model, "--tp-plan", self.rules, "--window", self.WINDOW,
                "--progress", "json"]  # fmt: skip

    def test_all_ranks_stop_soon_after_an_unreadable_range(self):
        reads = self.work / "reads"
        worker = {"call": "pread", "path": ".safetensors", "thread": "worker"}
        broken = worker | {"rank": 2, "from": self.WAVE_OF_ERROR * self.WINDOW}
        broken |= {"action": "errno", "value": errno.EIO}
        result = self.load(faults=[broken, worker | {"action": "log", "to": reads}])
        self.assert_fails(result, 3, "rank 2: ", FILE, "cannot read: Input/output error")
        # The wave with the error, those before, and one that was read ahead; a header begins one.
        waves = self.WAVE_OF_ERROR + 3
        read = sum(map(int, reads.read_text(encoding="utf-8").split()))
        self.assertLessEqual(read, RANKS * waves * self.WINDOW)
        self.assertGreater(self.WAVES, 2 * waves)
        for event in map(json.loads, result.output.splitlines()):
            self.assertLess(event["bytes"], event["total_bytes"] / 2)


class Saving(FaultCase):
    def test_disk_full_on_one_rank(self):
        self.fail_save("No space left on device", call="pwrite", path=self.saved,
                       value=errno.ENOSPC)  # fmt: skip

    def test_disk_full_in_the_middle(self):
        self.fail_save("No space left on device", call="pwrite", path=self.saved,
                       value=errno.ENOSPC, **{"from": 20_000})  # fmt: skip

    def test_rename_fails_on_one_rank(self):
        self.fail_save("cannot rename", call="rename", value=errno.EIO)

    def test_directory_not_permitted(self):
        self.fail_save("cannot create: Permission denied", call="open", flags=os.O_CREAT,
                       value=errno.EACCES)  # fmt: skip

    def test_directory_not_flushed_on_one_rank(self):
        """The file has its final name already."""
        fault = {"rank": 1, "call": "open", "path": self.saved, "flags": os.O_DIRECTORY}
        fault |= {"action": "errno", "value": errno.EMFILE}
        result = self.load("--save-sharded", self.saved, faults=[fault])
        self.assert_fails(result, 3, "rank 1: ", f"{self.saved}: cannot open: Too many open files")
        self.assert_nothing_saved()

    def fail_save(self, *words, **fault):
        result = self.save_with(fault)
        self.assert_fails(result, 3, "rank 1: ", saved_name(1), *words)
        self.assert_nothing_saved()

    def save_with(self, *faults):
        where = {"rank": 1, "path": "model-rank-1", "action": "errno"}
        return self.load("--save-sharded", self.saved, faults=[where | fault for fault in faults])


class SavingAgain(Saving):
    """Where files of an earlier save lie."""

    NO_LINKS = {"call": "link", "value": errno.EPERM}

    def setUp(self):
        super().setUp()
        self.saved.mkdir()
        self.earlier = {saved_name(rank): f"earlier file of rank {rank}" for rank in range(RANKS)}
        for name, text in self.earlier.items():
            (self.saved / name).write_text(text)

    def test_success_replaces_all(self):
        self.assert_replaced(self.load("--save-sharded", self.saved))

    def test_success_without_hard_links(self):
        self.assert_replaced(self.save_with(self.NO_LINKS))

    def test_rename_fails_without_hard_links(self):
        # The first rename sets the earlier file aside, the third puts it back.
        rename = {"call": "rename", "value": errno.EIO, "skip": 1, "times": 1}
        result = self.save_with(self.NO_LINKS, rename)
        self.assert_fails(result, 3, "rank 1: ", saved_name(1), "cannot rename")
        self.assert_nothing_saved()

    def test_earlier_file_cannot_be_set_aside(self):
        result = self.save_with(self.NO_LINKS, {"call": "rename", "value": errno.EPERM})
        self.assert_fails(result, 3, "rank 1: ", saved_name(1), "cannot set aside the earlier file")
        self.assert_nothing_saved()

    def assert_nothing_saved(self):
        left = {path.name: path.read_bytes() for path in self.saved.iterdir()}
        self.assertEqual(left, {name: text.encode() for name, text in self.earlier.items()})

    def assert_replaced(self, result):
        self.assertEqual(result.code, 0, result.errors)
        self.assertEqual({path.name for path in self.saved.iterdir()}, set(self.earlier))
        for path in self.saved.iterdir():
            self.assertNotIn(b"earlier", path.read_bytes())


if __name__ == "__main__":
    unittest.main()
