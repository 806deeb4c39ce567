"""Files that fail while they are read or written: all ranks report the one error."""

import errno
import fcntl
import json
import os
import shutil
import unittest
from pathlib import Path
from unittest import mock

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


class Mapping(FaultCase):
    """With --io mmap, which keeps other processes from changing a file that it has mapped."""

    OPTIONS = ("--io", "mmap", "--direct", "off")
    # Becomes the command, which may lock no memory.
    NO_LOCKED_MEMORY = 'ulimit -l 0 && exec "$@"'
    NO_LOCKED_MEMORY_OF_ROOT = 'ulimit -l 0 && exec setpriv --bounding-set=-ipc_lock "$@"'

    def setUp(self):
        super().setUp()
        with open(self.model / FILE, "rb") as file:
            try:
                fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            except OSError as error:
                self.skipTest(f"this filesystem has no leases: {error}")

    def test_no_fault(self):
        report = self.work / "report"
        result = self.load(*self.OPTIONS, "--strict", "--verify", "full", "--report", report)
        self.assertEqual(result.code, 0, result.errors)
        for rank in json.loads(report.read_text(encoding="utf-8"))["ranks"]:
            self.assertEqual(rank["io"]["path"], "mmap buffered")

    def test_file_is_truncated_by_another_process(self):
        self.change_while_mapped(lambda: os.truncate(self.model / FILE, 5000))

    def test_file_is_overwritten_by_another_process(self):
        def overwrite():
            with open(self.model / FILE, "r+b") as file:
                file.seek(DATA)
                file.write(b"other")

        self.change_while_mapped(overwrite)

    def change_while_mapped(self, change):
        """`change` happens when nothing of the file is mapped any more, and before it is read."""
        where = {"rank": 2, "path": FILE, "action": "sleep"}
        faults = [where | {"call": "mmap", "value": 2000, "times": 1},
                  where | {"call": "pread", "from": DATA, "value": 500}]  # fmt: skip
        loading = job.Job(RANKS, *self.load_command(), *LOAD_OPTIONS, *self.OPTIONS, faults=faults,
                          grace_seconds=self.GRACE_SECONDS)  # fmt: skip
        self.assertTrue(job.wait_until(self.is_leased))
        change()
        result = loading.end()
        if "cuda" in LOAD_OPTIONS and result.code == 0:
            return  # it was copied, and checked once more, before the change
        self.assert_fails(result, 3, "rank 2: ", FILE)
        self.assertRegex(result.messages[0], "file (ended early|changed since its header was read)")
        self.assertLess(result.seconds, job.SLACK_SECONDS)  # the kernel waits for 45

    def is_leased(self):
        inode = f":{(self.model / FILE).stat().st_ino} "
        locks = Path("/proc/locks").read_text(encoding="utf-8").splitlines()
        return any(inode in line for line in locks if " LEASE " in line)

    def test_file_is_open_for_writing(self):
        with open(self.model / FILE, "r+b"):
            self.assert_falls_back("rank 2: ", FILE, "a process has it open for writing")

    def test_no_memory_may_be_locked(self):
        wrapper = self.NO_LOCKED_MEMORY
        if os.geteuid() == 0:
            wrapper = self.NO_LOCKED_MEMORY_OF_ROOT
            if shutil.which("setpriv") is None:
                self.skipTest("root may lock memory, and there is no setpriv")
        script = self.work / "wrapper"
        script.write_text(wrapper, encoding="utf-8")
        launcher = f"{os.environ['MPIEXEC']} sh {script}"
        with mock.patch.dict(os.environ, {"MPIEXEC": launcher}):
            self.assert_falls_back("rank 0: ", model.file_name(0), "(ulimit -l: 0 KiB)")

    def assert_falls_back(self, *words):
        result = self.load(*self.OPTIONS, "--verify", "full")
        self.assertEqual(result.code, 0, result.errors)
        result = self.load(*self.OPTIONS, "--strict")
        self.assert_fails(result, 10, "strict", "mmap fell back to posix", *words)


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
