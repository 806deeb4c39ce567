"""What the command prints where, and how it ends.

Environment: that of launch.py.
"""

import json
import tempfile
import unittest
from pathlib import Path

from launch import run

USAGE_ERROR = 2
IO_ERROR = 3


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
        self.assert_one_message(result, USAGE_ERROR, "rank 0: --window: 'huge' is not a size; see")

    def test_messages_of_one_process(self):
        self.assert_one_message(run(), USAGE_ERROR, "A subcommand is required; see")
        self.assert_one_message(run("mkae"), USAGE_ERROR,
                                "there is no subcommand or option 'mkae'; see")
        self.assert_one_message(run("inspect", "/nonexistent"), IO_ERROR, "/nonexistent: ")


if __name__ == "__main__":
    unittest.main()
