"""What `plan --predict` prints. No test depends on the speed of this machine.

Environment: that of launch.py.
"""

import json
import tempfile
import unittest
from pathlib import Path

from launch import run

USAGE_ERROR = 2


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
        self.assertRegex(result.stderr, r'machine\.json: "costs\.pack\.source": missing')

    def test_a_thousand_ranks(self):
        many = self.predict_json("--machine", "8xh100", "--cache", "cold", "--replicas", 128, world=1024)
        self.assertEqual(many["prediction"]["nodes"], 128)
        self.assertEqual(len(many["ranks"]), 1024)

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


if __name__ == "__main__":
    unittest.main()
