"""`--experts parallel`: each rank loads whole experts, as many as any other, and its shards of all
other tensors."""

import json
import re
import tempfile
import unittest
from pathlib import Path

import checkpoint
import command
import models
import placement
from models import Weight

WORLDS = (1, 2, 3, 4, 5, 8)
DTYPES = ("keep", "f16")
CONFIG_ERROR, PLAN_ERROR = 2, 5
EXPERTS = 120

# Divisible by every world.
DIMENSIONS = {
    "hidden_size": 120, "num_attention_heads": 120, "num_key_value_heads": 120, "vocab_size": 120,
    "intermediate_size": 120, "num_hidden_layers": 1, "moe_intermediate_size": 6,
    "shared_expert_intermediate_size": 120,
}  # fmt: skip


def mixture(build, model_type, **config):
    config = {**DIMENSIONS, "model_type": model_type, **config}
    return models.Model(model_type, config, build(config))


def stacked_model(experts=EXPERTS):
    """Experts in one tensor, as in GPT-OSS."""
    weights = {
        "model.embed_tokens.weight": Weight((48, 8)),
        "model.layers.0.mlp.router.weight": Weight((experts, 8)),
        "model.layers.0.mlp.experts.gate_up_proj": Weight((experts, 8, 6)),
        "model.layers.0.mlp.experts.gate_up_proj_bias": Weight((experts, 6)),
    }
    return models.Model("stacked", {"model_type": "stacked"}, weights)


def experts_of(rank, world, experts):
    """Equally many, or where that is not possible, fewer for the last ranks."""
    each = -(-experts // world)
    return range(min(rank * each, experts), min((rank + 1) * each, experts))


def expected_shard(name, tensor, weight, rank, world, experts):
    """What a rank keeps of a tensor; None: nothing."""
    mine = experts_of(rank, world, experts)
    number = re.search(r"\.experts\.(\d+)\.", name)
    if number:
        return tensor if int(number[1]) in mine else None
    if ".experts." in name:
        return placement.shard_along(tensor, 0, [(mine.start, mine.stop)])
    return models.shard(tensor, weight, rank, world)


class Experts(unittest.TestCase):
    def setUp(self):
        self.enterContext(directory := tempfile.TemporaryDirectory())
        self.work = Path(directory.name)

    def write(self, model):
        directory = Path(tempfile.mkdtemp(dir=self.work))
        return directory, models.write(directory, model)

    def rules(self, **sections):
        path = Path(tempfile.mkdtemp(dir=self.work)) / "rules.json"
        path.write_text(json.dumps({"tp_plan": {}, **sections}), encoding="utf-8")
        return path

    def assert_loads(self, model, options, worlds, experts=EXPERTS):
        directory, tensors = self.write(model)
        cases = list(zip(worlds, DTYPES * len(worlds)))
        loads = command.for_each(lambda case: self.load(directory, *case, options), cases)
        for (world, dtype), (saved, report) in zip(cases, loads):
            with self.subTest(model=model.name, world=world, dtype=dtype):
                self.compare(model, tensors, saved, world, dtype, experts)
                read = sum(rank["read_bytes"] for rank in report["ranks"])
                self.assertEqual(read, sum(len(tensor.data) for tensor in tensors.values()))

    def load(self, directory, world, dtype, options):
        choices = [directory, "--dtype", dtype, "--window", "4KiB", *options]
        saved, report = command.load(self.work, world, *choices)
        plan = json.loads(command.run("plan", *choices, "--world", world, "--json").stdout)
        self.assertEqual((plan["proof"], plan["hash"]), ("ok", report["plan_hash"]))
        return saved, report

    def compare(self, model, tensors, saved, world, dtype, experts):
        for rank in range(world):
            actual = checkpoint.read(saved / f"model-rank-{rank}-part-0.safetensors")
            expected = {
                name: expected_shard(name, tensor, model.weights[name], rank, world, experts)
                for name, tensor in tensors.items()
            }
            expected = {name: shard for name, shard in expected.items() if shard is not None}
            self.assertEqual(actual.keys(), expected.keys(), f"rank {rank}")
            for name, shard in expected.items():
                converted = placement.convert(shard, dtype)
                self.assertEqual(actual[name].shape, converted.shape, f"{name} on rank {rank}")
                self.assertTrue(
                    placement.same_values(actual[name], converted, shard.dtype),
                    f"{name} on rank {rank}",
                )

    def test_mixtral(self):
        model = mixture(models.mixtral, "mixtral", num_local_experts=EXPERTS)
        self.assert_loads(model, ["--experts", "parallel"], WORLDS)

    def test_shared_experts(self):
        model = mixture(models.qwen2_moe, "qwen2_moe", num_experts=EXPERTS)
        self.assert_loads(model, ["--experts", "parallel"], (2, 3))

    def test_stacked_experts(self):
        words = {"layers.*.mlp.experts": "grouped_gemm", "layers.*.mlp.router": "ep_router"}
        for options in (
            ["--tp-plan", self.rules(tp_plan=words)],
            ["--tp-plan", self.rules(experts={"match": "layers.*.mlp.experts"}),
             "--experts", "parallel"],
        ):  # fmt: skip
            self.assert_loads(stacked_model(), options, (3, 4))

    def test_uneven(self):
        rules = self.rules(experts={"match": "layers.*.mlp.experts", "uneven": True})
        options = ["--tp-plan", rules, "--experts", "parallel"]
        self.assert_loads(stacked_model(5), options, (2, 4), 5)
        model = mixture(models.qwen3_moe, "qwen3_moe", num_experts=3, head_dim=2)
        self.assert_loads(model, ["--tp-plan", self.uneven_rules(model), "--experts", "parallel"],
                          (2, 4), 3)  # fmt: skip

    def uneven_rules(self, model):
        directory, _ = self.write(model)
        rules = json.loads(command.run("rules", directory).stdout)
        rules["experts"]["uneven"] = True
        return self.rules(**rules)

    def test_the_default_is_to_cut(self):
        directory, tensors = self.write(mixture(models.mixtral, "mixtral", num_local_experts=4))
        hashes = [self.plan(directory, *options)["hash"] for options in ([], ["--experts", "cut"])]
        self.assertEqual(hashes[0], hashes[1])
        dealt = self.plan(directory, "--experts", "parallel")
        self.assertNotEqual(dealt["hash"], hashes[0])
        numbered = sum(".experts." in name for name in tensors)
        self.assertEqual(dealt["placement"]["single"]["tensors"], numbered)

    def test_of_a_pipeline_stage(self):
        model = mixture(models.mixtral, "mixtral", num_local_experts=4, num_hidden_layers=3)
        directory, tensors = self.write(model)
        plan = self.plan(directory, "--experts", "parallel", "--pipeline-stage", "0/2")
        names = [n for n in tensors if re.search(r"embed_tokens|layers\.[01]\.", n)]
        read = sum(rank["read_bytes"] for rank in plan["ranks"])
        self.assertEqual(read, sum(len(tensors[name].data) for name in names))
        dealt = sum(".experts." in name for name in names)
        self.assertEqual(plan["placement"]["single"]["tensors"], dealt)

    def plan(self, directory, *options):
        result = command.run(
            "plan", directory, "--world", 2, "--assign", "round-robin", "--json", *options
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_errors(self):
        dense, _ = self.write(models.small_llama())
        self.assert_error(CONFIG_ERROR, 'no tensor of the checkpoint matches any of . keys: "layers.*.mlp.experts"', dense, 2)
        self.assert_error(CONFIG_ERROR, 'no tensor of the checkpoint matches any of . keys', dense, 1)
        self.assert_error(CONFIG_ERROR, 'replicate: no section "experts"', dense, 2,
                          "--tp-plan", "replicate")
        model, _ = self.write(mixture(models.mixtral, "mixtral", num_local_experts=8))
        self.assert_error(PLAN_ERROR, "tensor 'model.*experts.*8 experts do not divide among 3", model, 3)
        self.assert_error(PLAN_ERROR, "8 experts cannot be dealt to 12 ranks", model, 12)

    def assert_error(self, code, message, directory, world, *options):
        result = command.run("plan", directory, "--world", world, "--experts", "parallel", *options)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertRegex(result.stderr, message)


if __name__ == "__main__":
    unittest.main()
