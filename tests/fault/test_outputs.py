"""Outputs that cannot be written are refused before any tensor is read, alike on all ranks."""

import errno
import json
import os
import socket
import unittest

import job
import model
from case import RANKS, SAVED, FaultCase

FILE = model.file_name(1)
# Whoever reads tensors fails, with code 3.
NO_READING = {"call": "pread", "path": ".safetensors", "from": 1024, "action": "errno",
              "value": errno.EIO}  # fmt: skip
LOCK = ".safeshuffle.lock"


def saved_name(rank):
    return f"model-rank-{rank}-part-0.safetensors"


class Refused(FaultCase):
    """Each with one rank and with several; everything stays as it was."""

    def setUp(self):
        super().setUp()
        (self.model / "config.json").write_text("{}")
        self.report = self.work / "report.json"

    def assert_refused(self, options, code, *words, faults=()):
        before = contents(self.work)
        for ranks in (1, RANKS if faults else 2):
            with self.subTest(ranks=ranks, options=options):
                result = self.load(*options, ranks=ranks, faults=[NO_READING, *faults])
                self.assert_fails(result, code, *words)
                self.assertEqual(contents(self.work), before)

    def test_reports_over_what_is_read(self):
        link = self.work / "link.json"
        link.symlink_to(self.model / FILE)
        spelled = self.model / ".." / self.model.name / "." / FILE
        for option, path in (("--trace", self.model / FILE), ("--report", self.model / FILE),
                             ("--report", self.model / "config.json"), ("--report", self.rules),
                             ("--report", spelled), ("--report", link)):  # fmt: skip
            self.assert_refused([option, path], 2, f"rank 0: {path}: is read by this load")

    def test_reports_over_the_index(self):
        index = self.model / "model.safetensors.index.json"
        index.write_text('{"weight_map": {"cut.0.weight": "%s", "whole.0.weight": "%s"}}'
                         % (model.file_name(0), model.file_name(0)))  # fmt: skip
        self.assert_refused(["--report", index], 2, "is read by this load")

    def test_two_outputs_of_one_path(self):
        other = self.work / "model" / ".." / self.report.name
        self.assert_refused(["--report", self.report, "--trace", other], 2,
                            f"rank 0: {other}: ", "another of its outputs")  # fmt: skip
        saved = self.saved / "." / saved_name(0)
        self.assert_refused(["--save-sharded", self.saved, "--report", saved], 2,
                            f"rank 0: {saved}: ", "has the name of a checkpoint file")  # fmt: skip

    def test_report_through_a_link(self):
        elsewhere, target = self.work / "elsewhere", self.work / "some.json"
        elsewhere.symlink_to(target)
        target.write_text("{}")
        result = self.load("--report", elsewhere)
        self.assertEqual(result.code, 0, result.errors)
        self.assertTrue(elsewhere.is_symlink())
        self.assertIn("schema_version", json.loads(target.read_text()))

    def test_report_with_the_name_of_a_checkpoint_file(self):
        for name in ("x.safetensors", "model.safetensors.index.json"):
            self.assert_refused(["--trace", self.model / name], 2, "has the name of a checkpoint file")

    def test_report_where_no_file_can_be(self):
        missing = self.work / "missing" / "report.json"
        for option in ("--report", "--trace"):
            self.assert_refused([option, missing], 3, str(missing), "No such file or directory")
            self.assert_refused([option, self.model], 3, str(self.model), "Is a directory")

    def test_report_in_a_directory_that_is_read_only(self):
        fault = {"call": "open", "path": self.report.name, "flags": os.O_CREAT, "action": "errno",
                 "value": errno.EROFS}  # fmt: skip
        self.assert_refused(["--report", self.report], 3, str(self.report),
                            "cannot create: Read-only file system", faults=[fault])  # fmt: skip

    def test_directory_that_cannot_be_made(self):
        inside = self.model / FILE / "saved"
        self.assert_refused(["--save-sharded", inside], 3, str(inside), "cannot create")

    def test_directory_that_is_read_only(self):
        for name in (LOCK, "model-rank-0"):
            fault = {"call": "open", "path": name, "flags": os.O_CREAT, "action": "errno",
                     "value": errno.EROFS}  # fmt: skip
            self.assert_refused(["--save-sharded", self.saved], 3, name,
                                "cannot create: Read-only file system", faults=[fault])  # fmt: skip

    def test_directory_that_one_rank_cannot_write_to(self):
        fault = {"rank": 2, "call": "open", "path": "model-rank-2", "flags": os.O_CREAT,
                 "action": "errno", "value": errno.EACCES}  # fmt: skip
        result = self.load("--save-sharded", self.saved, faults=[NO_READING, fault])
        self.assert_fails(result, 3, f"rank 2: {self.saved / saved_name(2)}", "Permission denied")
        self.assertFalse(self.saved.exists())

    def test_directory_of_something_else(self):
        names = (saved_name(RANKS), "model-rank-0-part-1.safetensors", "model.safetensors",
                 "model.safetensors.index.json")  # fmt: skip
        self.saved.mkdir()
        for name in names:
            (self.saved / name).write_text("something else")
            self.assert_refused(["--save-sharded", self.saved], 2, str(self.saved / name))
            (self.saved / name).unlink()

    def test_directory_of_the_checkpoint(self):
        message = "the checkpoint itself lies in this directory"
        self.assert_refused(["--save-sharded", self.model], 2, str(self.model), message)
        elsewhere = self.work / "elsewhere"
        elsewhere.mkdir()
        (self.model / FILE).rename(elsewhere / FILE)
        (self.model / FILE).symlink_to(elsewhere / FILE)
        self.assert_refused(["--save-sharded", elsewhere], 2, str(elsewhere), message)

    def test_too_little_space(self):
        """What the ranks keep must fit together: of what is cut each has a part."""
        needed = model.FILES * model.ROWS * model.COLUMNS
        needed += RANKS * model.FILES * model.COLUMNS
        for free, code in ((needed - 1, 3), (needed, 0)):
            full = {"call": "statvfs", "action": "full", "value": free}
            result = self.load("--save-sharded", self.saved, faults=[full])
            self.assertEqual(result.code, code, result.errors)
            if code != 0:
                self.assert_fails(result, 3, f"rank 0: {self.saved}: ",
                                  f"take {needed} bytes, but only {free} are free")  # fmt: skip
                self.assertFalse(self.saved.exists())

    def test_too_little_space_is_seen_before_the_load(self):
        full = {"call": "statvfs", "action": "full", "value": 1000}
        self.assert_refused(["--save-sharded", self.saved], 3, "but only 1000 are free",
                            faults=[full])  # fmt: skip


class FailedLoads(FaultCase):
    """The outputs were ready, but there is nothing to write into them."""

    def test_nothing_is_left(self):
        parent = self.work / "new"
        for ranks in (1, RANKS):
            result = self.load("--save-sharded", parent / "saved", "--report", parent / "report",
                               "--trace", self.work / "trace", ranks=ranks,
                               faults=[NO_READING])  # fmt: skip
            self.assert_fails(result, 3, "cannot read: Input/output error")
            self.assertFalse(parent.exists())
            self.assertEqual(os.listdir(self.work), ["model"])


class TwoSaves(FaultCase):
    """At the same time, into one directory."""

    SLOW = {"rank": 0, "call": "pwrite", "path": SAVED, "from": 1024, "action": "sleep",
            "value": 4000, "times": 1}  # fmt: skip

    def test_the_second_is_told_who_was_first(self):
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                first = job.Job(ranks, *self.load_command(), "--save-sharded", self.saved,
                                faults=[self.SLOW])  # fmt: skip
                self.assertTrue(job.wait_until(self.is_locked))
                second = self.load("--save-sharded", self.saved, ranks=RANKS, faults=[NO_READING])
                done = first.end()
                self.assertEqual(done.code, 0, done.errors)
                self.assertEqual(second.code, 2, second.errors)
                self.assertEqual(len(second.messages), 1, second.errors)
                self.assertRegex(second.messages[0], f"^rank 0: {self.saved}: another process is "
                                 rf"saving into this directory: process \d+ on "
                                 rf"{socket.gethostname()}, since 20\S+Z$")  # fmt: skip
                self.assertEqual(sorted(os.listdir(self.saved)),
                                 [saved_name(rank) for rank in range(ranks)])  # fmt: skip
                for path in self.saved.iterdir():
                    path.unlink()

    def is_locked(self):
        lock = self.saved / LOCK
        return lock.exists() and lock.stat().st_size > 0


def contents(directory):
    """{path: bytes} of all files, links as what they point to."""
    return {
        path: os.readlink(path) if path.is_symlink() else path.is_file() and path.read_bytes()
        for path in directory.rglob("*")
    }


if __name__ == "__main__":
    unittest.main()
