"""`load --tp-plan auto` chooses the rules by config.json and cuts each architecture as vLLM does."""

import json
import shutil
import tempfile
import unittest
from itertools import cycle, permutations
from pathlib import Path

import checkpoint
import command
import models

WORLDS = (2, 4, 8)
PLAN_ERROR = 5


class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(directory := tempfile.TemporaryDirectory())
        cls.work = Path(directory.name)

    def test_loaded_and_saved_and_loaded_again(self):
        """Where ranks share KV heads, they may follow, in a fused tensor, what only one rank has."""

        def load_twice(case):
            model, worlds = case
            directory = self.work / model.name
            directory.mkdir()
            tensors = models.write(directory, model)
            self.load(model, tensors, worlds[0], directory)
            shutil.copy(directory / "config.json", directory / "saved")
            self.load(model, tensors, worlds[1], directory / "saved")
            if "quant" in (directory / "config.json").read_text(encoding="utf-8"):
                self.stream(tensors, worlds[0], directory)

        worlds = cycle(permutations((1, *WORLDS), 2))
        cases = [(m, next(w for w in worlds if not set(w) & set(m.refused))) for m in models.recorded_models()]
        command.for_each(load_twice, cases)

    def test_rules_that_are_printed_and_given_back_make_the_same_plan(self):
        for number, model in enumerate(models.recorded_models()):
            directory = self.work / f"printed-{number}"
            directory.mkdir()
            models.write(directory, model)
            printed = command.run("rules", directory)
            self.assertEqual(printed.returncode, 0, printed.stderr)
            rules = self.work / f"rules-{number}.json"
            rules.write_text(printed.stdout, encoding="utf-8")
            for world in set(WORLDS) - set(model.refused):
                with self.subTest(model=model.name, world=world):
                    automatic = self.plan_hash(directory, world, "auto")
                    self.assertEqual(self.plan_hash(directory, world, rules), automatic)
                    self.assertNotEqual(self.plan_hash(directory, world, "replicate"), automatic)

    def plan_hash(self, directory, world, rules):
        result = command.run("plan", directory, "--world", world, "--tp-plan", rules, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)["hash"]

    def test_short_shards(self):
        directory = self.work / "short"
        directory.mkdir()
        models.write(directory, models.small_llama())
        path = self.work / "short.json"
        path.write_text(json.dumps({"extends": "llama", "uneven": True}), encoding="utf-8")
        result = command.run_ranks(3, "load", directory, "--tp-plan", path, "--verify", "full")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_worlds_that_do_not_divide(self):
        directory = self.work / "indivisible"
        directory.mkdir()
        models.write(directory, models.small_llama())
        for world in (3, 5, 7, 64):
            with self.subTest(world):
                result = command.run("plan", directory, "--world", world)
                self.assertEqual(result.returncode, PLAN_ERROR, result.stderr)
                self.assertRegex(result.stderr, rf"tensor '\S+'.*does not divide among {world} ranks; "
                                                r"numbers of ranks that work: 1, 2, (3, )?4")

    def stream(self, tensors, world, directory):
        result = command.run_ranks(world, "load", directory, "--stream", "512KiB", "--dtype", "f16", "--verify", "full",
                                   "--progress", "json")  # fmt: skip
        self.assertEqual(result.returncode, 0, f"{directory}: {result.stderr}")
        done = json.loads(result.stdout.splitlines()[-1])
        self.assertTrue(done["verified"])
        self.assertGreaterEqual(done["tensor_bytes"], sum(len(tensor.data) for tensor in tensors.values()))

    def load(self, model, tensors, world, directory):
        saved = directory / "saved"
        result = command.run_ranks(world, "load", directory, "--window", "4KiB", "--save-sharded", saved)
        self.assertEqual(result.returncode, 0, f"{model.name}: {result.stderr}")
        for rank in range(world):
            actual = checkpoint.read(saved / f"model-rank-{rank}-part-0.safetensors")
            self.assertEqual(sorted(actual), sorted(tensors))
            for name, weight in model.weights.items():
                expected = models.shard(tensors[name], weight, rank, world)
                self.assertTrue(actual[name] == expected, f"{model.name}, {name} on rank {rank} of {world}")


if __name__ == "__main__":
    unittest.main()
