"""What the command prints where, and how it ends.

Environment: that of launch.py.
"""

import contextlib
import json
import os
import pty
import subprocess
import tempfile
import termios
import unittest
from pathlib import Path

from launch import run

USAGE_ERROR = 2
IO_ERROR = 3


def reads_directly(directory):
    file = min(directory.glob("*.safetensors"))
    try:
        os.close(os.open(file, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


def bars_on_terminal(columns, *arguments):
    """What the command draws on a terminal, one item per drawing."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    command = [os.environ["SAFESHUFFLE"], *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        drawn = b""
        with contextlib.suppress(OSError):  # EIO: the command has ended
            while part := os.read(ours, 4096):
                drawn += part
    os.close(ours)
    return [bar.strip("\n") for bar in drawn.decode().split("\r") if bar.strip("\n")]


class Output(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="safeshuffle-")
        cls.root = Path(cls.directory.name)
        cls.model = cls.root / "model"
        cls.made = run("make", cls.model, "--like", "llama-2-70b", "--scale", "0.0001", "--sparse",
                       "--progress", "json")

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def events(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)
        events = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual([event["event"] for event in events],
                         ["progress"] * (len(events) - 1) + ["done"])
        return events

    def test_make_as_json(self):
        done = self.events(self.made)[-1]
        files = list(self.model.glob("*.safetensors"))
        self.assertEqual(done["files"], len(files))
        self.assertEqual(done["file_bytes"], sum(file.stat().st_size for file in files))

    def test_make_tells_the_scale_that_it_came_to(self):
        self.assertAlmostEqual(self.events(self.made)[-1]["scale"], 0.00152, places=5)
        self.assertIn("warning: scale 0.0001 cannot be met", self.made.stderr)
        self.assertIn("making scale 0.00152 instead", self.made.stderr)
        met = run("make", self.root / "met", "--like", "llama-2-70b", "--scale", "0.01", "--sparse")
        self.assertEqual(met.returncode, 0, met.stderr)
        self.assertRegex(met.stdout, r"; scale 0\.0108\n$")
        self.assertEqual(met.stderr, "")

    def test_load_as_json(self):
        report = self.root / "report.json"
        events = self.events(run("load", self.model, "--progress", "json", "--verify", "full",
                                 "--report", report, ranks=4))
        self.assertTrue(events[-1]["verified"])
        self.assertEqual(events[-1]["report"], json.loads(report.read_text()))
        self.assertEqual(events[-1]["report"]["world"], 4)
        last = {event["activity"]: event for event in events[:-1]}
        self.assertEqual(set(last), {"loading", "verifying"})
        for event in last.values():
            self.assertEqual(event["bytes"], event["total_bytes"])

    def test_results_go_to_standard_output_and_no_bar_to_a_pipe(self):
        result = run("load", self.model, ranks=2)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("onto 2 ranks", result.stdout)
        self.assertEqual(result.stdout.count("loaded "), 1)
        self.assertNotIn("\r", result.stdout + result.stderr)
        self.assertNotIn("GB/s", result.stderr)

    def test_a_load_of_nothing(self):
        empty = self.root / "empty.safetensors"
        empty.write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
        for ranks in (1, 2):
            report = self.root / f"empty-{ranks}.json"
            result = run("load", empty, "--tp-plan", "replicate", "--report", report, ranks=ranks)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("I/O none; 0 waves", result.stdout)
            paths = {rank["io"]["path"] for rank in json.loads(report.read_text())["ranks"]}
            self.assertEqual(paths, {"none"})

    def test_direct_reads_under_strict_leave_nothing_to_the_page_cache(self):
        """Tensors are neither aligned nor as long as a block."""
        if not reads_directly(self.model):
            self.skipTest("the filesystem refuses O_DIRECT")
        report = self.root / "direct.json"
        result = run("load", self.model, "--direct", "on", "--strict", "--window", "1MiB",
                     "--tp-plan", "replicate", "--report", report)
        self.assertEqual(result.returncode, 0, result.stderr)
        (rank,) = json.loads(report.read_text())["ranks"]
        self.assertEqual(rank["io"]["path"], "posix direct")
        self.assertEqual(rank["io"]["direct_bytes"], rank["read_bytes"])
        self.assertEqual(rank["io"]["buffered_bytes"], 0)
        self.assertEqual(rank["io"]["fallbacks"], [])

    def test_a_bar_keeps_to_one_line_of_the_terminal(self):
        for columns in (5, 20, 40, 59, 60, 80):
            with self.subTest(columns):
                bars = bars_on_terminal(columns, "load", self.model)
                self.assertGreater(len(bars), 0)
                self.assertLess(max(map(len, bars)), columns)

    def assert_one_message(self, result, status, message):
        self.assertEqual(result.returncode, status)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("safeshuffle: error: "), 1, result.stderr)
        self.assertIn("safeshuffle: error: " + message, result.stderr)

    # The launcher ends all ranks when the first one exits with an error, so with many of them a
    # message that does not come in time is lost.
    def test_one_message_for_all_ranks(self):
        result = run("load", "/nonexistent", ranks=8)
        self.assert_one_message(result, IO_ERROR, "rank 0: /nonexistent: ")

    def test_one_usage_message_for_all_ranks(self):
        result = run("load", self.model, "--window", "huge", ranks=8)
        self.assert_one_message(result, USAGE_ERROR, "--window: 'huge' is not a size\n")

    def test_a_size_below_the_least_is_a_usage_error(self):
        for option in ("--window", "--chunk"):
            result = run("load", self.model, option, "0")
            self.assert_one_message(result, USAGE_ERROR, option + ": must be at least 4096 bytes\n")

    def test_an_empty_value_is_a_usage_error(self):
        for arguments in (
            ["load", ""], ["load", self.model, ""], ["load", self.model, "--report", ""],
            ["load", self.model, "--report="], ["load", self.model, "--trace", ""],
            ["load", self.model, "--save-sharded", ""], ["load", self.model, "--tp-plan", ""],
            ["plan", "", "--world", "2"], ["inspect", ""], ["make", "", "--like", "llama-2-70b"],
            ["make", self.root / "new", "--like", ""],
        ):  # fmt: skip
            with self.subTest(arguments):
                self.assert_one_message(run(*arguments), USAGE_ERROR, "")

    def test_messages_of_one_process(self):
        self.assert_one_message(run(), USAGE_ERROR, "A subcommand is required\n")
        self.assert_one_message(run("mkae"), USAGE_ERROR,
                                "there is no subcommand or option 'mkae'\n")
        self.assert_one_message(run("inspect", "/nonexistent"), IO_ERROR, "/nonexistent: ")


if __name__ == "__main__":
    unittest.main()
