"""`load --tp-plan auto` chooses the rules by config.json and cuts each architecture as vLLM does."""

import json
import shutil
import tempfile
import unittest
from itertools import cycle, product
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

    @staticmethod
    def models():
        return models.small_models() + models.small_quantised()

    def test_models(self):
        cases = list(product(enumerate(self.models()), WORLDS))
        for (numbered, world), (tensors, saved) in zip(cases, command.for_each(self.load, cases)):
            model = numbered[1]
            with self.subTest(model=model.config, world=world):
                for rank in range(world):
                    self.compare(model, tensors, saved, rank, world)

    def test_what_four_ranks_saved(self):
        """Pairs of them share KV heads, which in a fused tensor may follow what only one rank has."""

        def load_twice(case):
            (number, model), world = case
            tensors, saved = self.load(((f"saved-{number}", model), 4))
            shutil.copy(saved.parent / "config.json", saved)
            return tensors, self.load_and_save(model, world, saved)

        cases = list(zip(enumerate(self.models()), cycle((1, 2, 8))))
        for (numbered, world), (tensors, again) in zip(cases, command.for_each(load_twice, cases)):
            with self.subTest(model=numbered[1].config, world=world):
                for rank in range(world):
                    self.compare(numbered[1], tensors, again, rank, world)

    def test_rules_that_are_printed_and_given_back_make_the_same_plan(self):
        for number, model in enumerate(self.models()):
            directory = self.work / f"printed-{number}"
            directory.mkdir()
            models.write(directory, model)
            printed = command.run("rules", directory)
            self.assertEqual(printed.returncode, 0, printed.stderr)
            rules = self.work / f"rules-{number}.json"
            rules.write_text(printed.stdout, encoding="utf-8")
            for world in WORLDS:
                with self.subTest(model=model.config, world=world):
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

    def load(self, case):
        (number, model), world = case
        directory = self.work / f"{number}-{world}"
        directory.mkdir()
        tensors = models.write(directory, model)
        return tensors, self.load_and_save(model, world, directory)

    def load_and_save(self, model, world, directory):
        saved = directory / "saved"
        result = command.run_ranks(
            world, "load", directory, "--window", "4KiB", "--save-sharded", saved
        )
        self.assertEqual(result.returncode, 0, f"{model.name}: {result.stderr}")
        return saved

    def compare(self, model, tensors, saved, rank, world):
        actual = checkpoint.read(saved / f"model-rank-{rank}-part-0.safetensors")
        self.assertEqual(sorted(actual), sorted(tensors))
        for name, weight in model.weights.items():
            expected = models.shard(tensors[name], weight, rank, world)
            self.assertEqual(actual[name].shape, expected.shape, f"{name} on rank {rank}")
            self.assertEqual(actual[name].data, expected.data, f"{name} on rank {rank}")


if __name__ == "__main__":
    unittest.main()
