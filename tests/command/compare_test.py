"""scripts/compare, from the command to its files, on a model that takes no room.

Environment: SAFESHUFFLE, the command; SCRIPTS, the directory of scripts.
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from launch import run

PEERS = Path.home() / ".cache" / "safeshuffle" / "peers"  # where scripts/compare has them by default


class Compare(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="safeshuffle-")
        cls.root = Path(cls.directory.name)
        cls.model = cls.root / "model"
        made = run("make", cls.model, "--like", "llama-2-70b", "--scale", "0.0001", "--sparse")
        assert made.returncode == 0, made.stderr

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def start(self, *options, model):
        return subprocess.run(
            [sys.executable, Path(os.environ["SCRIPTS"], "compare"), "--command", os.environ["SAFESHUFFLE"],
             *model, "--cache", "warm", "--turns", "2", "--ranks", "2", "--dir", self.root,
             "--no-install", "--no-plots",
             *options],
            capture_output=True, text=True, timeout=400, check=False)  # fmt: skip

    def compare(self, *options, model=None):
        """What it printed, and results.json. In memory nothing is cold, so that all is measured warm."""
        out = self.root / self._testMethodName
        done = self.start("--out", out, *options, model=model or ("--model", self.model))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((out / "summary.md").read_text() + "\n", done.stdout)
        with open(out / "results.csv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        result = json.loads((out / "results.json").read_text())
        self.assertEqual(len(rows), len(result["samples"]))
        return done, result

    def test_without_the_others(self):
        done, result = self.compare("--environment", self.root / "none", "--only", "safetensors-mmap")
        self.assertIn("**safetensors-mmap**: safetensors is not installed: ", done.stdout)
        self.assertEqual([(sample["case"]["dtype"], sample["turn"]) for sample in result["samples"]],
                         [("keep", 0), ("keep", 1), ("f16", 0), ("f16", 1)])
        for sample in result["samples"]:
            case = sample["case"]
            self.assertEqual((case["system"], case["cache"], case["ranks"]), ("safeshuffle", "warm", 2))
            self.assertLess(sample["read_bytes"], sample["bytes"] / 100)  # of other files
            for name in "seconds", "cpu_seconds", "gigabytes_per_second", "peak_resident_bytes":
                self.assertGreater(sample[name], 0, name)
            self.assertGreater(sample["peak_resident_bytes"], sample["bytes"])
        self.assertIn("about ", done.stderr)  # time left

    def test_earlier_results_are_replaced_only_if_asked_to(self):
        out = self.root / self._testMethodName
        out.mkdir()
        (out / "results.json").write_text("earlier")
        done = self.start("--out", out, model=("--model", self.model))
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(f"compare: {out}/results.json has results: use another --out, or --fresh", done.stderr)
        self.assertEqual((out / "results.json").read_text(), "earlier")
        self.compare("--fresh", "--only", "fio", "--dtype", "keep")

    def test_a_model_that_is_made(self):
        made = ("--like", "llama-2-70b", "--scale", "0.0001")
        _, result = self.compare("--only", "fio", "--dtype", "keep", model=made)
        self.assertEqual(len(result["samples"]), 2)
        self.assertEqual(result["models"][0]["name"], "llama-2-70b")
        self.assertEqual(list(self.root.glob("safeshuffle-compare-*")), [])

    def test_against_another_build(self):
        other = self.root / "build" / "bin" / "safeshuffle"
        other.parent.mkdir(parents=True)
        other.symlink_to(os.environ["SAFESHUFFLE"])
        _, result = self.compare("--against", self.root / "build", "--only", "fio", "--dtype", "keep")
        self.assertEqual([proof["system"] for proof in result["proofs"]], [f"safeshuffle of {other}"])
        self.assertEqual({sample["case"]["system"] for sample in result["samples"]},
                         {"safeshuffle", f"safeshuffle of {other}"})
        self.assertEqual([entry["case"]["system"] for entry in result["summary"] if entry["ratio"]],
                         [f"safeshuffle of {other}"])

    @unittest.skipUnless(PEERS.is_dir(), "scripts/compare has installed nothing here")
    def test_with_all_others_that_can_run_here(self):
        done, result = self.compare("--environment", PEERS, "--dtype", "f16", "--skip", "cached-read")
        others = ["safetensors-mmap", "safetensors-pread", "fastsafetensors", "fastsafetensors-sharded", "runai",
                  "runai-each"]
        if Path(os.environ["SCRIPTS"], "../build/bin/libsafeshuffle_c.so").exists():
            others.append("safeshuffle-python")
        equal = {"ranks": 2, "dtype": "f16", "tensors": 2 * 723}
        self.assertEqual(result["proofs"], [{"system": name} | equal for name in others], done.stdout)
        first, second = ([sample["case"]["system"] for sample in result["samples"] if sample["turn"] == turn]
                         for turn in (0, 1))
        self.assertEqual(sorted(first), sorted(["safeshuffle", *others]))
        self.assertEqual(second, first[::-1])
        self.assertEqual([entry["case"]["system"] for entry in result["summary"] if entry["ratio"]], others)


if __name__ == "__main__":
    unittest.main()
