"""`--pipeline-stage`: each stage loads its own tensors, reads nothing else, and all stages together
load the whole model. Which tensors a stage has is written down from vLLM's pipeline, not from the
rules under test."""

import json
import re
import tempfile
import unittest
from pathlib import Path

import checkpoint
import command
import models
import placement

WORLDS = (1, 2, 3, 4, 5, 8)
CONFIG_ERROR, PLAN_ERROR = 2, 5
ROUND_ROBIN = ("--assign", "round-robin")  # with which nothing is read twice

# Divisible by every world.
DIMENSIONS = {
    "hidden_size": 240, "num_attention_heads": 120, "num_key_value_heads": 120, "vocab_size": 120,
    "intermediate_size": 120,
}  # fmt: skip

EMBEDDINGS = ("embed_tokens", "word_embeddings", "embed_in")
HEADS = ("lm_head", "embed_out")


def llama(layers, **config):
    config = {**DIMENSIONS, "model_type": "llama", "num_hidden_layers": layers, **config}
    return models.Model("llama", config, models.llama(config))


def layer_ranges(layers, stages):
    """vLLM's get_pp_indices."""
    partitions = [layers // stages] * stages
    for i in range(2, layers % stages + 2):
        partitions[-i] += 1
    return [range(sum(partitions[:i]), sum(partitions[: i + 1])) for i in range(stages)]


def layers_of(model):
    return model.config.get("num_hidden_layers") or model.config["n_layer"]


def is_in(model, name, layers, is_first, is_last):
    """Whether a tensor is in a stage with these layers."""
    number = re.search(r"(?:layers|h)\.(\d+)\.", name)
    if number:
        return int(number[1]) in layers
    module = name.split(".")[-2].removesuffix("_layernorm")
    tied = model.config.get("tie_word_embeddings", not any(n.startswith(HEADS) for n in model.weights))
    if module in EMBEDDINGS:
        shared = tied and name.split(".")[-2] == module
        return is_first or (is_last and shared)
    return is_last


def names_of(model, index, stages):
    layers = layer_ranges(layers_of(model), stages)[index]
    return {n for n in model.weights if is_in(model, n, layers, index == 0, index + 1 == stages)}


class Stages(unittest.TestCase):
    def setUp(self):
        self.enterContext(directory := tempfile.TemporaryDirectory())
        self.work = Path(directory.name)

    def write(self, model):
        directory = Path(tempfile.mkdtemp(dir=self.work))
        return directory, models.write(directory, model)

    def plan(self, directory, index, stages, world, *options):
        stage = f"{index}/{stages}"
        result = command.run(
            "plan", directory, "--world", world, "--pipeline-stage", stage, "--json", *options
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        plan = json.loads(result.stdout)
        self.assertEqual(plan["pipeline_stage"], {"index": index, "count": stages})
        self.assertEqual(plan["proof"], "ok")
        return plan

    def read_bytes(self, plan):
        return sum(rank["read_bytes"] for rank in plan["ranks"])

    def test_the_layers_of_stages_as_vllm_deals_them(self):
        self.assertEqual([len(r) for r in layer_ranges(61, 8)], [7, 7, 8, 8, 8, 8, 8, 7])

    def test_stages_read_their_own_tensors_only(self):
        for model in models.small_models():
            directory, tensors = self.write(model)
            for world in (1, 2):
                for stages in (1, 2):
                    for index in range(stages):
                        with self.subTest(model.config, world=world, stage=(index, stages)):
                            plan = self.plan(directory, index, stages, world, *ROUND_ROBIN)
                            names = names_of(model, index, stages)
                            needed = sum(len(tensors[name].data) for name in names)
                            self.assertEqual(self.read_bytes(plan), needed)
                            dropped = plan["placement"]["dropped"]["tensors"]
                            self.assertEqual(dropped, len(tensors) - len(names))

    def test_any_number_of_stages_reads_the_model_once(self):
        layers = 7
        directory, tensors = self.write(llama(layers))
        whole = sum(len(tensor.data) for tensor in tensors.values())
        for stages in range(1, layers + 1):
            for world in (1, 3):
                with self.subTest(stages=stages, world=world):
                    plans = [self.plan(directory, i, stages, world, *ROUND_ROBIN) for i in range(stages)]
                    self.assertEqual(sum(map(self.read_bytes, plans)), whole)

    def test_loads(self):
        model = llama(5)
        directory, tensors = self.write(model)
        cases = [(world, index) for world in WORLDS for index in range(3)]
        loads = command.for_each(lambda case: self.load(directory, *case, 3), cases)
        for (world, index), saved in zip(cases, loads):
            with self.subTest(world=world, stage=index):
                self.compare(model, tensors, saved, world, index, 3)

    def test_tied_weights(self):
        model = llama(2, tie_word_embeddings=True)
        directory, tensors = self.write(model)
        for index in range(2):
            with self.subTest(stage=index):
                self.assertIn("model.embed_tokens.weight", names_of(model, index, 2))
                saved = self.load(directory, 2, index, 2)
                self.compare(model, tensors, saved, 2, index, 2)

    def dtype(self, world, index):
        return ("keep", "f16")[(world + index) % 2]

    def load(self, directory, world, index, stages):
        options = ["--window", "4KiB", "--dtype", self.dtype(world, index), *ROUND_ROBIN]
        stage = ["--pipeline-stage", f"{index}/{stages}"]
        saved, report = command.load(self.work, world, directory, *stage, *options)
        self.assertEqual(report["pipeline_stage"], {"index": index, "count": stages})
        planned = self.plan(directory, index, stages, world, *options)
        self.assertEqual(report["plan_hash"], planned["hash"])
        self.assertEqual(self.read_bytes(report), self.read_bytes(planned))
        return saved

    def compare(self, model, tensors, saved, world, index, stages):
        names = names_of(model, index, stages)
        for rank in range(world):
            actual = checkpoint.read(saved / f"model-rank-{rank}-part-0.safetensors")
            self.assertEqual(actual.keys(), names)
            for name in names:
                shard = models.shard(tensors[name], model.weights[name], rank, world)
                expected = placement.convert(shard, self.dtype(world, index))
                self.assertEqual(actual[name].shape, expected.shape, f"{name} on rank {rank}")
                self.assertTrue(
                    placement.same_values(actual[name], expected, tensors[name].dtype), name
                )

    def test_combined_with_patterns(self):
        model = llama(4)
        directory, tensors = self.write(model)
        options = ["--only", "*.mlp.*", "--skip", "*.2.mlp.up_proj.*", *ROUND_ROBIN]
        names = {
            name
            for name in names_of(model, 1, 2)
            if ".mlp." in name and ".2.mlp.up_proj." not in name
        }
        needed = sum(len(tensors[name].data) for name in names)
        self.assertEqual(self.read_bytes(self.plan(directory, 1, 2, 2, *options)), needed)
        self.assert_error(CONFIG_ERROR, "no tensor is left to load", directory,
                          "--pipeline-stage", "0/2", "--only", "lm_head*")

    def test_stages_that_a_rule_file_lists(self):
        model = llama(6)
        directory, tensors = self.write(model)
        rules = json.loads(command.run("rules", directory).stdout)
        rules["pipeline"]["layers_per_stage"] = [1, 3, 2]
        path = self.work / "rules.json"
        path.write_text(json.dumps(rules), encoding="utf-8")
        for index, layers in enumerate((range(1), range(1, 4), range(4, 6))):
            names = {n for n in tensors if is_in(model, n, layers, index == 0, index == 2)}
            plan = self.plan(directory, index, 3, 2, "--tp-plan", path, *ROUND_ROBIN)
            needed = sum(len(tensors[name].data) for name in names)
            self.assertEqual(self.read_bytes(plan), needed)
        self.assert_error(CONFIG_ERROR, "is for 3 stages, not 2", directory, "--tp-plan", path,
                          "--pipeline-stage", "0/2")

    def test_errors(self):
        directory, _ = self.write(llama(2))
        self.assert_error(CONFIG_ERROR, "2 layers cannot be dealt to 3 pipeline stages", directory,
                          "--pipeline-stage", "0/3")
        self.assert_error(CONFIG_ERROR, 'no section "pipeline"', directory,
                          "--pipeline-stage", "0/2", "--tp-plan", "replicate")
        for text in ("2/2", "1", "a/2", "1/2/3", "-1/2", "1/", "/2", "0/0", "1/4294967296", "0/2 "):
            self.assert_error(CONFIG_ERROR, f"'{text}' is not a stage I/N", directory,
                              f"--pipeline-stage={text}")
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        config["num_hidden_layers"] = 1
        (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
        self.assert_error(PLAN_ERROR, r"tensor 'model\.layers\.1\..*belongs to layer 1", directory,
                          "--pipeline-stage", "0/1")
        (directory / "config.json").unlink()
        self.assert_error(CONFIG_ERROR, "config.json, which selects the built-in rules, is missing",
                          directory, "--pipeline-stage", "0/1")

    def assert_error(self, code, message, *arguments):
        result = command.run("plan", "--world", 1, *arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertRegex(result.stderr, message)


if __name__ == "__main__":
    unittest.main()
