"""The section `compose` of rule files: every rank gets what numpy makes of the tensors that the
reference library reads: joined in vLLM's order, split, padded with zeros, under all tied names."""

import json
import tempfile
import unittest
from pathlib import Path

import numpy as np

import checkpoint
import command
import models
import placement
from checkpoint import Tensor

CONFIG_ERROR, PLAN_ERROR = 2, 5
LAYERS = 2
EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"
PADDED_VOCABULARY = 120  # divisible by every world
SHARD = "model-rank-{}-part-0.safetensors"

ATTENTION = "layers.*.self_attn."
QKV = {"join": [f"{ATTENTION}{part}_proj.weight" for part in "qkv"],
       "as": f"{ATTENTION}qkv_proj.weight", "dim": 0}  # fmt: skip
GATE_UP = {"join": ["layers.*.mlp.gate_proj.weight", "layers.*.mlp.up_proj.weight"],
           "as": "layers.*.mlp.gate_up_proj.weight", "dim": 0}  # fmt: skip
SPLIT = {"split": GATE_UP["as"], "into": GATE_UP["join"], "dim": 0, "sizes": [1, 1]}
TIE = {"tie": [EMBED, HEAD], "if": "tie_word_embeddings"}
PAD = {"pad": EMBED, "dim": 0, "multiple": 40}


def llama(kv_heads, tied=True):
    config = {
        "model_type": "llama", "hidden_size": 240, "num_attention_heads": 120,
        "num_key_value_heads": kv_heads, "intermediate_size": 120, "vocab_size": 90,
        "num_hidden_layers": LAYERS, "tie_word_embeddings": tied,
    }  # fmt: skip
    return models.Model("llama", config, models.llama(config))


def rows(tensor):
    """As numpy sees it, in bytes."""
    return np.frombuffer(tensor.data, np.uint8).reshape(tensor.shape[0], -1)


def of_rows(data, like):
    return Tensor(like.dtype, (len(data), *like.shape[1:]), data.tobytes())


def join(*tensors):
    return of_rows(np.concatenate([rows(tensor) for tensor in tensors]), tensors[0])


def pad(tensor, multiple):
    return of_rows(np.pad(rows(tensor), ((0, -tensor.shape[0] % multiple), (0, 0))), tensor)


class Compose(unittest.TestCase):
    def setUp(self):
        self.enterContext(directory := tempfile.TemporaryDirectory())
        self.work = Path(directory.name)

    def write(self, model, changed=None):
        """Layers of BF16 and F32, in three files; returns what the reference library reads."""
        directory = Path(tempfile.mkdtemp(dir=self.work))
        rng = np.random.default_rng(len(model.weights))
        tensors = {
            name: checkpoint.random_tensor(rng, "F32" if ".1." in name else "BF16", weight.shape)
            for name, weight in model.weights.items()
        }
        tensors = changed(tensors) if changed else tensors
        names = list(tensors)
        files = {f"model-{i}.safetensors": {n: tensors[n] for n in names[i::3]} for i in range(3)}
        for name, group in files.items():
            checkpoint.write_by_reference(directory / name, group)
        checkpoint.write_index(directory, files, json.dumps(model.config))
        stored = {}
        for name in files:
            stored.update(checkpoint.read(directory / name))
        return directory, stored

    def rules(self, directory, *entries):
        rules = json.loads(command.run("rules", directory).stdout)
        path = directory.with_suffix(".rules.json")
        path.write_text(json.dumps({**rules, "compose": entries}), encoding="utf-8")
        return path

    def load(self, world, directory, rules, *options):
        """Every rank's tensors, and the report; the plan is proved and the one that was planned."""
        arguments = [directory, "--tp-plan", rules, "--window", "4KiB", *options]
        saved, report = command.load(self.work, world, *arguments)
        planned = command.run("plan", "--world", world, "--json", *arguments)
        self.assertEqual(planned.returncode, 0, planned.stderr)
        plan = json.loads(planned.stdout)
        self.assertEqual((plan["proof"], plan["hash"]), ("ok", report["plan_hash"]))
        return saved, report

    def expected(self, model, stored, rank, world):
        """What vLLM would hold, if its entries join q, k, v and gate, up, and tie and pad."""

        def shard(name):
            return models.shard(stored[name], model.weights[name], rank, world)

        result = {}
        for layer in range(LAYERS):
            prefix = f"model.layers.{layer}."
            for module, parts in (("self_attn.qkv", "qkv"), ("mlp.gate_up", ("gate", "up"))):
                path = f"{prefix}{module.split('.')[0]}."
                result[f"{prefix}{module}_proj.weight"] = join(
                    *(shard(f"{path}{part}_proj.weight") for part in parts)
                )
        parts = tuple(f"{part}_proj.weight" for part in ("q", "k", "v", "gate", "up"))
        result.update({n: shard(n) for n in model.weights if not n.endswith((*parts, EMBED, HEAD))})
        padded = rows(pad(stored[EMBED], PAD["multiple"]))
        self.assertEqual(len(padded), PADDED_VOCABULARY)
        result[EMBED] = result[HEAD] = of_rows(np.split(padded, world)[rank], stored[EMBED])
        return result

    def compare(self, saved, rank, expected, dtype="keep"):
        actual = checkpoint.read(saved / SHARD.format(rank))
        self.assertEqual(actual.keys(), expected.keys())
        for name, tensor in expected.items():
            converted = placement.convert(tensor, dtype)
            self.assertEqual(actual[name].shape, converted.shape, f"{name} on rank {rank}")
            self.assertTrue(placement.same_values(actual[name], converted, tensor.dtype), name)

    def read_bytes(self, report):
        return sum(rank["read_bytes"] for rank in report["ranks"])

    def test_joined_tied_and_padded(self):
        # Two KV heads are replicated on four and eight ranks, and do not divide among three or five.
        cases = [(world, heads, dtype)
                 for world, heads in ((1, 2), (2, 2), (3, 3), (4, 2), (5, 5), (8, 2))
                 for dtype in ("keep", "f16")]  # fmt: skip
        written = {heads: (llama(heads), *self.write(llama(heads))) for heads in (2, 3, 5)}
        rules = {heads: self.rules(written[heads][1], QKV, GATE_UP, TIE, PAD) for heads in written}

        def load(case):
            world, heads, dtype = case
            return self.load(world, written[heads][1], rules[heads], "--dtype", dtype)

        for (world, heads, dtype), (saved, report) in zip(cases, command.for_each(load, cases)):
            model, _, stored = written[heads]
            with self.subTest(world=world, heads=heads, dtype=dtype):
                for rank in range(world):
                    expected = self.expected(model, stored, rank, world)
                    self.compare(saved, rank, expected, dtype)
                needed = sum(len(tensor.data) for tensor in stored.values())
                self.assertEqual(self.read_bytes(report), needed)

    def test_a_tied_tensor_is_read_once_whichever_names_the_files_have(self):
        model = llama(2)
        changes = {
            "embedding": lambda tensors: tensors,
            "head": lambda tensors: {HEAD if n == EMBED else n: t for n, t in tensors.items()},
            "both": lambda tensors: {**tensors, HEAD: tensors[EMBED]},
        }
        for names, change in changes.items():
            with self.subTest(names):
                directory, stored = self.write(model, change)
                rules = self.rules(directory, QKV, GATE_UP, TIE, PAD)
                saved, report = self.load(2, directory, rules)
                table = stored.get(EMBED, stored.get(HEAD))
                once = {**{n: t for n, t in stored.items() if n not in (EMBED, HEAD)}, EMBED: table}
                for rank in range(2):
                    self.compare(saved, rank, self.expected(model, once, rank, 2))
                self.assertEqual(self.read_bytes(report), sum(len(t.data) for t in once.values()))

    def test_metadata_names_the_embedding_a_second_time(self):
        """As save_model of the reference library writes a tied head, whether the index knows of it
        or not. Rules that place the two differently make them two."""
        model = llama(2)
        directory, stored = self.write(model)
        first = next(path for path in directory.glob("*.safetensors") if EMBED in checkpoint.read(path))
        checkpoint.write_by_reference(first, checkpoint.read(first), {HEAD: EMBED, "a": "b"})
        index = directory / "model.safetensors.index.json"
        indexed = json.loads(index.read_text(encoding="utf-8"))
        bare = directory.with_suffix(".bare.json")
        bare.write_text('{"lm_head": "colwise"}', encoding="utf-8")
        for known in False, True:
            if known:
                indexed["weight_map"][HEAD] = first.name
                index.write_text(json.dumps(indexed), encoding="utf-8")
            for rules in "auto", bare:
                with self.subTest(known=known, rules=rules):
                    saved, report = self.load(2, directory, rules)
                    self.assertEqual(self.read_bytes(report), sum(len(t.data) for t in stored.values()))
                    for rank in range(2):
                        actual = checkpoint.read(saved / SHARD.format(rank))
                        half = of_rows(np.split(rows(stored[EMBED]), 2)[rank], stored[EMBED])
                        self.assertEqual(actual[HEAD], half)
                        self.assertEqual(actual[EMBED], half if rules == "auto" else stored[EMBED])
                        self.assertEqual(actual.keys(), {*stored, HEAD})

    def test_not_tied_according_to_config_json(self):
        model = llama(2, tied=False)
        directory, stored = self.write(model)
        saved, report = self.load(2, directory, self.rules(directory, TIE))
        self.assertEqual(self.read_bytes(report), sum(len(t.data) for t in stored.values()))
        for rank in range(2):
            self.compare(saved, rank, {n: models.shard(t, model.weights[n], rank, 2)
                                       for n, t in stored.items()})  # fmt: skip

    def test_split(self):
        model = llama(6)

        def fuse(tensors):
            for layer in range(LAYERS):
                path = f"model.layers.{layer}.mlp."
                parts = [tensors.pop(f"{path}{part}_proj.weight") for part in ("gate", "up")]
                tensors[f"{path}gate_up_proj.weight"] = join(*parts)
            return tensors

        directory, stored = self.write(model, fuse)
        rules = self.rules(directory, SPLIT)
        for layer in range(LAYERS):
            path = f"model.layers.{layer}.mlp."
            fused = stored.pop(f"{path}gate_up_proj.weight")
            for part, half in zip(("gate", "up"), np.split(rows(fused), 2)):
                stored[f"{path}{part}_proj.weight"] = of_rows(half, fused)
        for world, dtype in ((1, "keep"), (2, "f16"), (3, "keep")):
            with self.subTest(world=world, dtype=dtype):
                saved, report = self.load(world, directory, rules, "--dtype", dtype)
                self.assertEqual(self.read_bytes(report), sum(len(t.data) for t in stored.values()))
                for rank in range(world):
                    shards = {n: models.shard(t, model.weights[n], rank, world)
                              for n, t in stored.items()}  # fmt: skip
                    self.compare(saved, rank, shards, dtype)

    def test_a_sharded_state_is_composed_as_well(self):
        model = llama(2)
        directory, stored = self.write(model)
        by_two, _ = command.load(self.work, 2, directory)
        (by_two / "config.json").write_text(json.dumps(model.config), encoding="utf-8")
        rules = self.rules(directory, QKV, GATE_UP, TIE, PAD)
        for world in (1, 2, 4):
            with self.subTest(world=world):
                saved, _ = self.load(world, by_two, rules)
                for rank in range(world):
                    self.compare(saved, rank, self.expected(model, stored, rank, world))

    def test_selected_by_new_names_and_by_stage(self):
        model = llama(2)
        directory, stored = self.write(model)
        rules = self.rules(directory, QKV, GATE_UP, TIE, PAD)
        saved, report = self.load(2, directory, rules, "--pipeline-stage", "1/2", "--skip", HEAD)
        for rank in range(2):
            expected = self.expected(model, stored, rank, 2)
            stage = {n: t for n, t in expected.items() if ".1." in n or n == "model.norm.weight"}
            self.compare(saved, rank, stage)
        saved, report = self.load(2, directory, rules, "--only", HEAD, "--only", "*.0.*qkv*")
        for rank in range(2):
            expected = self.expected(model, stored, rank, 2)
            names = (EMBED, HEAD, "model.layers.0.self_attn.qkv_proj.weight")
            self.compare(saved, rank, {name: expected[name] for name in names})

    def test_errors(self):
        directory, _ = self.write(llama(2))
        absent = {**QKV, "join": [f"{ATTENTION}{part}_proj.bias" for part in "qkv"]}
        some = {**QKV, "join": [*QKV["join"], f"{ATTENTION}x_proj.weight"]}
        mixed = {**QKV, "join": [QKV["join"][0], f"{ATTENTION}o_proj.weight"]}
        for code, message, entry in (
            (CONFIG_ERROR, r'"compose\[0\]": no tensor of the checkpoint matches', absent),
            (CONFIG_ERROR, r'"compose\[0\]\.what": unknown field', {**QKV, "what": 1}),
            (PLAN_ERROR, r"which the checkpoint does not have", some),
            (PLAN_ERROR, r"in ways that cannot be joined along axis 0", mixed),
        ):
            rules = self.rules(directory, entry)
            result = command.run("plan", directory, "--world", 2, "--tp-plan", rules)
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertRegex(result.stderr, message)


if __name__ == "__main__":
    unittest.main()
