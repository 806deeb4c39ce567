"""Large checkpoints: the plan is right, quick and small."""

import json
import os
import sys
import tempfile
import unittest
from pathlib import Path

from safetensors import safe_open

import checkpoint
import command
import models
from checkpoint import BITS, Tensor, byte_count

GIB = 1 << 30
WORLDS = (1, 4, 8)
LAYOUTS = {"llama-2-70b": models.llama, "bloom-176b": models.bloom, "falcon-180b": models.falcon}
COUNTS = ("read_bytes", "sent_bytes", "received_bytes", "kept_bytes")


def shared_layouts():
    """Listings of the real models, which lie beside the sources on some machines only."""
    for directory in Path(__file__).resolve().parents:
        if (directory / "shared/data/layouts").is_dir():
            return directory / "shared/data/layouts"
    return None


def say(text):
    print(text, file=sys.stderr)


class Scale(unittest.TestCase):
    def setUp(self):
        self.enterContext(directory := tempfile.TemporaryDirectory())
        self.work = Path(directory.name)

    def plan(self, model, world, *options):
        result = command.measure("plan", model, "--world", world, "--json", *options)
        self.assertEqual(result.returncode, 0, result.stderr)
        plan = json.loads(result.stdout)
        self.assertEqual((plan["world"], plan["proof"]), (world, "ok"))
        return plan, result

    def assert_counts(self, plan, expected):
        actual = [{count: rank[count] for count in COUNTS} for rank in plan["ranks"]]
        self.assertEqual(actual, expected)


class Layouts(Scale):
    """Real models at their true size, from sparse files."""

    def test_layouts(self):
        directory = shared_layouts()
        for name, build in LAYOUTS.items():
            with self.subTest(name):
                model = self.make(name)
                if directory is not None:
                    self.assert_files(model, json.loads((directory / f"{name}.json").read_text(encoding="utf-8")))
                config = json.loads((model / "config.json").read_text(encoding="utf-8"))
                self.assert_plans(model, build(config))

    def make(self, layout):
        model = self.work / f"model {len(list(self.work.iterdir()))}"
        result = command.run("make", model, "--like", layout, "--sparse", "--progress", "none")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertLess(sum(path.stat().st_blocks * 512 for path in model.iterdir()), 100 << 20)
        return model

    def assert_files(self, model, layout):
        self.assertEqual(json.loads((model / "config.json").read_text(encoding="utf-8")), layout["config"])
        sizes = {path.name: path.stat().st_size for path in model.glob("*.safetensors")}
        self.assertEqual(sizes.keys(), layout["files"].keys())
        known = {name: size for name, size in layout["files"].items() if size is not None}
        self.assertEqual({name: sizes[name] for name in known}, known)
        index = json.loads((model / "model.safetensors.index.json").read_text(encoding="utf-8"))
        self.assertEqual(index["weight_map"], layout["weight_map"])
        headers = self.headers(model)
        for name, (file, dtype, _) in headers.items():
            self.assertEqual(file, layout["weight_map"][name])
            self.assertEqual(dtype, layout["dtypes"].get(name, layout["dtypes"]["default"]), name)
        if layout["total_size"] is not None:
            total = sum(byte_count(dtype, shape) for _, dtype, shape in headers.values())
            self.assertEqual(total, layout["total_size"])

    def headers(self, model):
        """{tensor name: (file name, dtype, shape)} as the reference library reads them."""
        tensors = {}
        for path in sorted(model.glob("*.safetensors")):
            with safe_open(path, "np") as file:
                for name in file.keys():
                    view = file.get_slice(name)
                    tensors[name] = path.name, view.get_dtype(), tuple(view.get_shape())
        return tensors

    def assert_plans(self, model, weights):
        headers = self.headers(model)
        shapes = {name: shape for name, (_, _, shape) in headers.items()}
        self.assertEqual(shapes, {name: weight.shape for name, weight in weights.items()})
        for world in WORLDS:
            plan, result = self.plan(model, world)
            self.assert_counts(plan, self.expected(headers, weights, world))
            self.assertLess(result.max_rss_bytes, GIB)
            say(f"plan {len(headers)} tensors, {world} ranks: {result.seconds:.2f} s, "
                f"{result.max_rss_bytes >> 20} MiB")  # fmt: skip

    def expected(self, headers, weights, world):
        files = sorted({file for file, _, _ in headers.values()})
        ranks = [dict.fromkeys(COUNTS, 0) for _ in range(world)]
        for name, (file, dtype, shape) in headers.items():
            reader = files.index(file) % world
            ranks[reader]["read_bytes"] += byte_count(dtype, shape)
            for rank in range(world):
                size = kept_bytes(weights[name], dtype, rank, world)
                ranks[rank]["kept_bytes"] += size
                if rank != reader:
                    ranks[reader]["sent_bytes"] += size
                    ranks[rank]["received_bytes"] += size
        return ranks


def kept_bytes(weight, dtype, rank, world):
    shape = list(weight.shape)
    if weight.cut is not None:
        shape[weight.axis] = sum(end - begin for begin, end in weight.cut(rank, world))
    return byte_count(dtype, shape)


class Many(Scale):
    """100,000 tensors in 500 files."""

    FILES, EACH = 500, 200
    MODULES = {"q_proj": "colwise", "o_proj": "rowwise", "norm": "replicate", "up_proj": "colwise"}

    def test_many_tensors(self):
        model = self.write()
        rules = self.work / "rules.json"
        plan = {f"layers.*.{module}": word for module, word in self.MODULES.items()}
        rules.write_text(json.dumps(plan), encoding="utf-8")
        self.assert_plan_is_quick(model, rules)
        self.assert_loads(model, rules)

    def write(self):
        model = self.work / "model"
        model.mkdir()
        files = {}
        for number in range(self.FILES):
            data = os.urandom(self.EACH * 128)
            names = [f"layers.{number}{i:03}.{module}.weight" for i in range(self.EACH // 4)
                     for module in self.MODULES]  # fmt: skip
            files[f"{number:04}.safetensors"] = {
                name: Tensor("U8", (64, 2) if "o_proj" not in name else (2, 64),
                             data[i * 128 : i * 128 + 128])
                for i, name in enumerate(names)
            }  # fmt: skip
        for name, tensors in files.items():
            checkpoint.write_by_hand(model / name, tensors)
        checkpoint.write_index(model, files)
        return model

    def assert_plan_is_quick(self, model, rules):
        """Of the time, most goes to opening 500 files and parsing their headers; what `inspect` takes
        for that is taken off."""
        world, count = 64, self.FILES * self.EACH
        parsing = command.measure("inspect", model, "--files-only")
        self.assertEqual(parsing.returncode, 0, parsing.stderr)
        plan, result = self.plan(model, world, "--tp-plan", rules)
        self.assertEqual(sum(rank["read_bytes"] for rank in plan["ranks"]), count * 128)
        kept = count * (3 * 128 // world + 128) // 4
        self.assertEqual([rank["kept_bytes"] for rank in plan["ranks"]], [kept] * world)
        self.assertLess(result.max_rss_bytes, GIB)
        # A second is the aim; machines under test are slow and shared.
        self.assertLess(result.seconds - parsing.seconds, 10)
        say(f"plan {count} tensors, {world} ranks: {result.seconds:.2f} s, of which parsing "
            f"{parsing.seconds:.2f} s; {result.max_rss_bytes >> 20} MiB")  # fmt: skip

    def assert_loads(self, model, rules):
        saved = self.work / "saved"
        result = command.run_ranks(
            4, "load", model, "--tp-plan", rules, "--verify", "full", "--save-sharded", saved
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        for rank in range(4):
            tensors = checkpoint.read(saved / f"model-rank-{rank}-part-0.safetensors")
            self.assertEqual(len(tensors), self.FILES * self.EACH)


if __name__ == "__main__":
    unittest.main()
