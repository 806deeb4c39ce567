"""safeshuffle bench, from the command to its files, on a model that takes no room.

Environment: that of launch.py.
"""

import csv
import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from launch import run

USAGE_ERROR = 2
IO_ERROR = 3
TIMEOUT_SECONDS = 60
EXPERIMENT = {
    "schema_version": 2,
    "title": "A test",
    "question": "Does it work?",
    "models": [{"like": "llama-2-7b", "scale": 0.0001}],
    "ranks": [1, 2],
    "cache": ["warm"],
    "load": {"assign": ["round-robin"]},
    "turns": 2,
}
SRUN = """#!/bin/sh
[ "$1" = --version ] && exec echo slurm 1.2
ranks=1
while :; do
  case $1 in
    --ntasks=*) ranks=${1#*=} ;;
    --*) ;;
    *) break ;;
  esac
  shift
done
unset SLURM_JOB_ID SLURM_JOB_NUM_NODES SLURM_NTASKS
exec """


def bench(*arguments):
    return run("bench", *arguments)


class Usage(unittest.TestCase):
    def assert_fails(self, result, code, message):
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertRegex(result.stderr, message)

    def test_help_is_that_of_the_program(self):
        result = bench("--help")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("usage: safeshuffle bench EXPERIMENT", result.stdout)
        self.assertIn("bench  ", run("--help").stdout)

    def test_unknown_experiments_are_told_with_the_known_ones(self):
        self.assert_fails(bench("weka"), USAGE_ERROR, "^safeshuffle: error: no experiment 'weka'; there are: .*strong-")
        self.assert_fails(bench(), USAGE_ERROR, "EXPERIMENT is missing; there are: .*strong-scaling")
        self.assertRegex(bench("--list").stdout, "(?m)^strong-scaling +How ")

    def test_experiments_that_are_not_valid(self):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "e.json")
            path.write_text(json.dumps(EXPERIMENT | {"turns": "many"}))
            self.assert_fails(bench(path), USAGE_ERROR, f"^safeshuffle: error: {path}: .*'many'")
            self.assert_fails(bench(Path(directory, "none.json")), USAGE_ERROR, "none.json.*: .*No such file")

    def test_without_python(self):
        result = subprocess.run([os.environ["SAFESHUFFLE"], "bench", "--list"], env={"PATH": "/nonexistent"},
                                capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
        self.assert_fails(result, IO_ERROR, "bench needs Python 3.11 or newer, and PATH has no python3")

    def test_where_the_program_is_not_installed(self):
        with tempfile.TemporaryDirectory() as directory:
            command = shutil.copy2(os.environ["SAFESHUFFLE"], directory)
            result = subprocess.run([command, "bench", "--list"], capture_output=True, text=True, check=False,
                                    timeout=TIMEOUT_SECONDS)
        self.assert_fails(result, IO_ERROR, "libexec/safeshuffle/scripts/bench: bench is not installed")

    def test_it_starts_the_ranks_itself(self):
        self.assert_fails(run("bench", "--list", ranks=2), USAGE_ERROR, "run it without mpirun")


class Bench(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(directory := tempfile.TemporaryDirectory(prefix="safeshuffle-"))
        cls.root = Path(directory.name)
        cls.model, cls.experiment = cls.root / "model", cls.root / "own.json"
        cls.experiment.write_text(json.dumps(EXPERIMENT))
        made = run("make", cls.model, "--like", "llama-2-7b", "--scale", "0.0001", "--sparse")
        assert made.returncode == 0, made.stderr

    def arguments(self, out, *further):
        return [self.experiment, "--model", self.model, "--dir", self.root, "--out", out, "--no-plots", *further]

    def results(self, out, name="own"):
        return json.loads((out / name / "results.json").read_text())

    def test_from_an_experiment_to_its_files(self):
        out = self.root / "files"
        done = bench(self.experiment, "--dir", self.root, "--out", out, "--no-plots")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("**A test: Does it work?**", done.stdout)
        self.assertIn("no plot: it was not asked for", done.stderr)
        result = self.results(out)
        self.assertEqual(len(result["samples"]), 2 * 2)
        [model] = result["models"]
        self.assertEqual((model["name"], model["files"]), ("llama-2-7b", 2))
        for sample in result["samples"]:
            self.assertTrue(sample["note"].startswith("round-robin, "), sample["note"])
            phases = sum(value for name, value in sample.items() if name.endswith("_seconds") and name != "cpu_seconds")
            self.assertLessEqual(phases, 1.01 * sample["seconds"])
            for name in "cpu_seconds", "peak_resident_bytes", "peak_anonymous_bytes":
                self.assertGreater(sample[name], 0, name)
        with open(out / "own" / "results.csv", encoding="utf-8") as file:
            self.assertEqual(len(list(csv.DictReader(file))), len(result["samples"]))
        self.assertIn(" s left", done.stderr)

    def test_what_was_measured_before_an_interruption_is_written(self):
        out = self.root / "interrupted"
        command = [os.environ["SAFESHUFFLE"], "bench", *map(str, self.arguments(out, "--turns", 200))]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            for line in process.stderr:
                if line.startswith("[3/"):
                    break
            process.send_signal(signal.SIGINT)
            process.stderr.read()
            self.assertEqual(process.wait(TIMEOUT_SECONDS), 128 + signal.SIGINT)
        self.assertGreaterEqual(len(self.results(out)["samples"]), 2)
        self.assertEqual(list(self.root.glob("safeshuffle-bench-*")), [])  # nothing is left of it

    def test_earlier_results_are_replaced_only_if_asked_to(self):
        out = self.root / "other"
        self.assertEqual(bench(*self.arguments(out, "--turns", 1, "--ranks", 1)).returncode, 0)
        refused = bench(*self.arguments(out, "--turns", 1))
        self.assertEqual(refused.returncode, USAGE_ERROR)
        self.assertIn("results.json has results: use another --out, or --fresh", refused.stderr)
        self.assertEqual(bench(*self.arguments(out, "--turns", 1, "--ranks", 2, "--fresh")).returncode, 0)
        self.assertEqual({sample["case"]["ranks"] for sample in self.results(out)["samples"]}, {2})

    def test_experiments_that_vary_models_need_their_own(self):
        refused = bench("weak-scaling", "--model", self.model, "--out", self.root / "refused")
        self.assertEqual(refused.returncode, USAGE_ERROR)
        self.assertIn("weak-scaling varies its models: it cannot be run with --model", refused.stderr)

    def test_the_scaling_of_an_existing_model(self):
        out = self.root / "existing"
        done = bench("strong-scaling", "--model", self.model, "--quick", "--ranks", 1, "--turns", 1, "--out", out,
                     "--no-plots")
        result = self.results(out, "strong-scaling")
        self.assertEqual([model["name"] for model in result["models"]], ["model"])
        states = {sample["case"]["cache"] for sample in result["samples"] if sample["case"]["system"] == "safeshuffle"}
        self.assertIn("warm", states)
        in_memory = "cold" not in states
        self.assertEqual(done.returncode, IO_ERROR if in_memory else 0, done.stderr)

    def test_models_do_not_grow_beyond_the_real_ones(self):
        refused = bench("weak-scaling", "--ranks", 1, 1000, "--out", self.root / "refused")
        self.assertEqual(refused.returncode, USAGE_ERROR)
        self.assertIn("with 1000 ranks, a model would be ", refused.stderr)

    def test_an_experiment_that_fails_does_not_end_the_others(self):
        failing, out = self.root / "failing.json", self.root / "several"
        failing.write_text(json.dumps(EXPERIMENT | {"models": [{"like": "none", "scale": 1}]}))
        done = bench(failing, self.experiment, "--dir", self.root, "--turns", 1, "--out", out, "--no-plots")
        self.assertEqual(done.returncode, USAGE_ERROR, done.stderr)
        self.assertIn("not all could be run: ", done.stderr)
        self.assertEqual(len(self.results(out)["samples"]), 2)

    def test_on_the_nodes_of_a_hostfile(self):
        """That names this node only."""
        nodes, out = self.root / "nodes", self.root / "hostfile"
        nodes.write_text("localhost slots=2\n")
        done = bench(*self.arguments(out, "--turns", 1, "--hostfile", nodes))
        self.assertEqual(done.returncode, 0, done.stderr)
        result = self.results(out)
        self.assertEqual(result["launcher"], "mpirun --hostfile")
        self.assertEqual([sample["case"]["ranks"] for sample in result["samples"]], [1, 2])
        nodes.write_text("localhost slots=1\n")
        refused = bench(*self.arguments(self.root / "few", "--turns", 1, "--ranks", 2, "--hostfile", nodes))
        self.assertNotEqual(refused.returncode, 0)  # the file is heeded: no more ranks than slots

    def test_in_a_slurm_allocation(self):
        """With an srun that is mpirun."""
        srun = self.root / "bin" / "srun"
        srun.parent.mkdir()
        srun.write_text(SRUN + os.environ["MPIEXEC"].replace("{ranks}", "$ranks") + ' "$@"\n')
        srun.chmod(0o755)
        out = self.root / "slurm"
        variables = {"SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS": "2",
                     "PATH": f"{srun.parent}:{os.environ['PATH']}"}
        with mock.patch.dict(os.environ, variables):
            done = bench(*self.arguments(out, "--turns", 1))
        self.assertEqual(done.returncode, 0, done.stderr)
        result = self.results(out)
        self.assertEqual(result["launcher"], "srun")
        self.assertEqual([sample["case"]["ranks"] for sample in result["samples"]], [1, 2])

    def test_a_case_that_fails(self):
        out = self.root / "failing"
        experiment = self.root / "failing.json"
        experiment.write_text(json.dumps(EXPERIMENT | {"load": {"memory-budget": ["1MiB", None]}}))
        done = bench(experiment, *self.arguments(out, "--turns", 1)[1:])
        self.assertEqual(done.returncode, 7, done.stderr)  # that of the load
        result = self.results(out, "failing")
        self.assertEqual(len(result["samples"]), 2)
        self.assertEqual(sorted(entry["what"] for entry in result["not_run"]),
                         [f"model, warm, {ranks}, --memory-budget 1MiB, safeshuffle"
                          for ranks in ("1 rank", "2 ranks")])
        self.assertIn("Not run:", (out / "failing" / "summary.md").read_text())


if __name__ == "__main__":
    unittest.main()
