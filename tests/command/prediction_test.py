"""What `plan --predict` and `simulate` print, and scripts/predict-published with them. No test depends on the speed of
this machine.

Environment: that of launch.py; SCRIPTS, the directory of scripts.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from launch import run

USAGE_ERROR, IO_ERROR = 2, 3


class Prediction(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(directory := tempfile.TemporaryDirectory(prefix="safeshuffle-"))
        cls.root = Path(directory.name)
        cls.model = cls.root / "70b"
        assert run("make", cls.model, "--like", "llama-2-70b", "--sparse").returncode == 0

    def predict(self, *options, world=8):
        return run("plan", self.model, "--world", world, "--predict", *options)

    def predict_json(self, *options, world=8):
        result = self.predict("--json", *options, world=world)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_json_has_seconds_and_the_source_of_every_number(self):
        prediction = self.predict_json("--machine", "8xh100", "--cache", "cold")["prediction"]
        self.assertEqual(prediction["machine"], "8xh100")
        self.assertEqual((prediction["nodes"], prediction["cached_share"]), (1, 0))
        self.assertEqual(list(prediction["seconds"]),
                         ["open", "allocate", "read", "host_to_device", "pack", "exchange", "waves",
                          "total"])  # fmt: skip
        self.assertAlmostEqual(prediction["seconds"]["read"], 139.0e9 / 26e9, delta=0.1)
        self.assertTrue(prediction["assumptions"])
        for assumption in prediction["assumptions"]:
            self.assertEqual(list(assumption), ["name", "value", "source"])
            self.assertTrue(assumption["source"])

    def test_plan_has_no_prediction_unless_asked_for(self):
        self.assertNotIn("prediction", json.loads(run("plan", self.model, "--world", 1, "--json").stdout))

    def test_the_page_cache_and_nodes_count(self):
        cold, warm = (self.predict_json("--machine", "8xh100", "--cache", state)["prediction"]
                      for state in ("cold", "warm"))  # fmt: skip
        self.assertLess(warm["seconds"]["total"], cold["seconds"]["total"])
        self.assertEqual(warm["cached_share"], 1)
        many = self.predict_json("--machine", "8xh100", "--cache", "cold", "--replicas", 8, world=64)
        self.assertEqual(many["prediction"]["nodes"], 8)
        self.assertLess(many["prediction"]["seconds"]["total"], cold["seconds"]["total"])

    def test_the_table_says_which_machine(self):
        result = self.predict("--machine", "8xa100", "--cache", "cold")
        self.assertIn("predicted  0.000", result.stdout)
        self.assertIn("on 1 node of 8xa100 (8 x NVIDIA A100", result.stdout)
        self.assertIn("0 % of the files in the page cache", result.stdout)
        result = self.predict(world=1)
        self.assertIn("on 1 node of defaults (no probe of this machine ", result.stdout)

    def test_a_machine_may_be_a_file(self):
        path = self.root / "machine.json"
        built_in = Path(__file__).parents[2] / "configs/machines/8xh100.json"
        machine = json.loads(built_in.read_text(encoding="utf-8"))
        machine["costs"]["read_cold_direct_node"]["value"] = 13e9
        path.write_text(json.dumps(machine), encoding="utf-8")
        prediction = self.predict_json("--machine", path, "--cache", "cold")["prediction"]
        self.assertEqual(prediction["machine"], str(path))
        self.assertAlmostEqual(prediction["seconds"]["read"], 139.0e9 / 13e9, delta=0.2)
        del machine["costs"]["pack"]["source"]
        path.write_text(json.dumps(machine, indent=1), encoding="utf-8")
        result = self.predict("--machine", path)
        self.assertEqual(result.returncode, USAGE_ERROR)
        self.assertRegex(result.stderr, r'machine\.json: line \d+, column \d+: "costs\.pack\.source": missing')

    def simulate(self, *options, world=8):
        return run("simulate", self.model, "--world", world, "--machine", "8xh100", "--cache", "cold", *options)

    def test_a_simulation_moves_the_bytes_of_the_plan(self):
        simulation = json.loads(self.simulate("--json", "--replicas", 2, world=16).stdout)
        plan = self.predict_json("--machine", "8xh100", "--cache", "cold", "--replicas", 2, world=16)
        for key in ("world", "replicas", "assignment", "window", "waves"):
            self.assertEqual(simulation[key], plan[key])
        for simulated, planned in zip(simulation["ranks"], plan["ranks"], strict=True):
            for key in ("rank", "read_bytes", "sent_bytes", "received_bytes"):
                self.assertEqual(simulated[key], planned[key])
        self.assertEqual(simulation["assumptions"], plan["prediction"]["assumptions"])
        self.assertGreaterEqual(simulation["seconds"], 139.0e9 / 2 / 26e9)
        self.assertEqual(list(simulation["use"]), ["storage", "host", "copies", "network_out", "network_in"])

    def test_the_phases_of_a_rank_add_up(self):
        simulation = json.loads(self.simulate("--json").stdout)
        for rank in simulation["ranks"]:
            self.assertEqual(list(rank["seconds"]), ["open", "read", "host_to_device", "pack", "exchange"])
            self.assertAlmostEqual(sum(rank["seconds"].values()), simulation["seconds"], delta=1e-3)

    def test_a_thousand_ranks_take_seconds(self):
        begin = time.monotonic()
        result = self.simulate("--replicas", 128, world=1024)
        self.assertIn("onto 1024 ranks in ", result.stdout, result.stderr)
        self.assertIn("on 128 nodes of 8xh100", result.stdout)
        self.assertLess(time.monotonic() - begin, 20)

    def test_the_trace_has_every_wave_of_every_rank(self):
        path = self.root / "trace.json"
        result = self.simulate("--trace", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
        spans = [event for event in events if event["ph"] == "X"]
        waves = json.loads(self.simulate("--json").stdout)["waves"]
        self.assertEqual(sum(span["name"].startswith("exchange ") for span in spans), 8 * waves)
        self.assertEqual({span["pid"] for span in spans}, set(range(8)))
        self.assertEqual(self.simulate("--trace", self.root / "none" / "x").returncode, IO_ERROR)
        self.assertEqual(self.simulate("--trace", self.root / "x.safetensors").returncode, USAGE_ERROR)

    def test_the_same_simulation_gives_the_same_text(self):
        self.assertEqual(self.simulate("--json").stdout, self.simulate("--json").stdout)

    def test_impossible_machines_are_usage_errors(self):
        for options, message in (
            (["--machine", "9xh900"], "no machine '9xh900': neither one of 8xa100,"),
            (["--machine", "8xh100", "--device", "cuda"], "--device excludes --machine"),
            (["--machine", "8xh100", "--nodes", "9"], "8 ranks cannot be on 9 nodes"),
        ):
            with self.subTest(options):
                result = self.predict(*options)
                self.assertEqual(result.returncode, USAGE_ERROR, result.stdout)
                self.assertIn(message, result.stderr)


class Published(unittest.TestCase):
    SIZES = {"llama-2-7b": 13, "llama-2-13b": 26, "llama-2-70b": 139, "falcon-40b": 84, "bloom-176b": 352,
             "llama-3.1-405b": 812, "llama-3.1-405b-f8": 406, "qwen2.5-14b": 30, "qwen2.5-32b": 66, "qwen2.5-72b": 145,
             "qwen3-30b-a3b": 61, "deepseek-r1": 694}  # fmt: skip

    @classmethod
    def setUpClass(cls):
        done = subprocess.run([sys.executable, Path(os.environ["SCRIPTS"], "predict-published"), "--command",
                               os.environ["SAFESHUFFLE"]], capture_output=True, text=True, check=True, timeout=60)
        cls.published, cls.forecasts = (
            [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]
            for table in done.stdout.split("\n\n"))

    def test_models_are_as_large_as_the_real_ones(self):
        sizes = {row[0]: int(row[1]) for row in self.published[2:] + self.forecasts[2:]}
        self.assertEqual(sizes, self.SIZES)

    def test_differences_are_those_of_predicted_from_published(self):
        header, _, *rows = self.published
        published, predicted, difference = map(header.index, ("published", "predicted", "difference"))
        self.assertGreater(len(rows), 5)
        for row in rows:
            ratio = float(row[predicted].split()[0]) / float(row[published].split()[0])
            self.assertAlmostEqual(int(row[difference].rstrip("%")) / 100, ratio - 1, delta=0.01, msg=row)

    def test_more_nodes_load_the_same_model_faster(self):
        header, _, *rows = self.forecasts
        seconds = {(row[0], row[2], row[3], row[4]): float(row[header.index("seconds")]) for row in rows}
        self.assertLess(seconds["llama-2-70b", "64", "1", "cold"], seconds["llama-2-70b", "8", "1", "cold"] / 7)
        self.assertGreater(seconds["llama-2-70b", "64", "8", "warm"], seconds["llama-2-70b", "64", "1", "warm"])


if __name__ == "__main__":
    unittest.main()
