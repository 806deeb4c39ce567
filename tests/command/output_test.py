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

    def test_one_warning_for_all_ranks(self):
        report = self.root / "warned.json"
        load = run("load", self.model, "--window", "4KiB", "--report", report, ranks=4)
        self.assertEqual(load.returncode, 0, load.stderr)
        plan = run("plan", self.model, "--world", 4, "--window", "4KiB", "--json")
        warnings = json.loads(plan.stdout)["warnings"]
        self.assertEqual(len(warnings), 1)
        self.assertIn("the window of 4096 bytes", warnings[0])
        self.assertEqual(json.loads(report.read_text())["warnings"], warnings)
        for result in load, plan:
            self.assertEqual(result.stderr.count(f"safeshuffle: warning: {warnings[0]}\n"), 1)
            self.assertEqual(result.stderr.count("safeshuffle: warning: "), 1, result.stderr)

    def test_no_warning_by_default(self):
        plan = run("plan", self.model, "--world", 4, "--json")
        self.assertEqual((json.loads(plan.stdout)["warnings"], plan.stderr), ([], ""))

    def test_a_model_of_which_nothing_is_partitioned(self):
        options = ["--tp-plan", "replicate"]
        load = run("load", self.model, *options, "--progress", "json", ranks=2)
        plan = run("plan", self.model, "--world", 2, *options)
        for result in load, plan:
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stderr.count("safeshuffle: warning: no tensor is partitioned: "), 1)
        self.assertRegex(plan.stdout, "(?m)^partitioned 0 tensors of 0 B; replicated 723 tensors of ")
        alone = run("plan", self.model, "--world", 1, *options)
        self.assertEqual(alone.stderr, "")

    def test_how_tensors_are_placed(self):
        plan = run("plan", self.model, "--world", 2, "--json")
        placement = json.loads(plan.stdout)["placement"]
        self.assertEqual({how: count["tensors"] for how, count in placement.items()},
                         {"partitioned": 562, "replicated": 161, "single": 0, "dropped": 0})
        line = "(?m)^partitioned 562 tensors of [0-9.]+ MB; replicated 161 tensors of [0-9.]+ kB$"
        self.assertRegex(run("plan", self.model, "--world", 2).stdout, line)
        report = self.root / "placed.json"
        load = run("load", self.model, "--report", report, ranks=2)
        self.assertRegex(load.stdout, line)
        self.assertEqual(json.loads(report.read_text())["placement"], placement)

    def test_one_message_for_a_key_without_a_tensor(self):
        rules = self.root / "mistyped.json"
        rules.write_text('{"layerz.*.mlp.up_proj": "colwise"}', encoding="utf-8")
        message = f'{rules}: line 1, column 2: "layerz.*.mlp.up_proj": no tensor of the checkpoint '
        for world in (1, 2):
            plan = run("plan", self.model, "--world", world, "--tp-plan", rules)
            self.assert_one_message(plan, USAGE_ERROR, message)
        load = run("load", self.model, "--tp-plan", rules, ranks=4)
        self.assert_one_message(load, USAGE_ERROR, "rank 0: " + message)

    def test_rules(self):
        listed = run("rules")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertRegex(listed.stdout, r"(?m)^falcon +falcon, RefinedWeb, RefinedWebModel$")
        self.assertIn("safeshuffle rules --built-in NAME\n", listed.stdout)
        for name in "llama", "gemma2":
            printed = run("rules", "--built-in", name)
            self.assertIn("gemma2", json.loads(printed.stdout)["model_types"])
            self.assertEqual(run("rules", self.model).stdout, printed.stdout)
        bare = self.root / "bare.json"
        bare.write_text('{"layers.*.mlp.up_proj": "colwise"}', encoding="utf-8")
        self.assertEqual(json.loads(run("rules", self.model, "--tp-plan", bare).stdout),
                         {"tp_plan": {"layers.*.mlp.up_proj": "colwise"}})
        self.assert_one_message(run("rules", "--built-in", "bert"), USAGE_ERROR,
                                "there are no built-in rules 'bert'")
        self.assert_one_message(run("rules", "--tp-plan", bare), USAGE_ERROR, "--tp-plan requires MODEL")

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

    def test_messages_of_one_process(self):
        self.assert_one_message(run(), USAGE_ERROR, "A subcommand is required\n")
        self.assert_one_message(run("mkae"), USAGE_ERROR,
                                "there is no subcommand or option 'mkae'\n")
        self.assert_one_message(run("inspect", "/nonexistent"), IO_ERROR, "/nonexistent: ")


if __name__ == "__main__":
    unittest.main()
