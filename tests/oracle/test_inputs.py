"""One model in every shape in which checkpoints come: the result is the same. And shapes that are
wrong: the error names what is."""

import json
import os
import re
import tempfile
import unittest
from pathlib import Path

import numpy as np

import checkpoint
import command
import models

CONFIG_ERROR, IO_ERROR, FORMAT_ERROR = 2, 3, 4
INDEX = "model.safetensors.index.json"


def grouped(tensors, count):
    """`count` files with every count-th tensor each."""
    names = list(tensors)
    return {
        f"model-{i + 1:05}-of-{count:05}.safetensors": {n: tensors[n] for n in names[i::count]}
        for i in range(count)
    }


def write(directory, files, config):
    directory.mkdir(parents=True)
    for name, group in files.items():
        checkpoint.write_by_reference(directory / name, group)
    checkpoint.write_index(directory, files, json.dumps(config))
    return directory


class Inputs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(directory := tempfile.TemporaryDirectory())
        cls.work = Path(directory.name)
        cls.model = models.small_llama(layers=56)  # 507 tensors
        rng = np.random.default_rng(81)
        cls.tensors = {
            name: checkpoint.random_tensor(rng, "BF16", weight.shape)
            for name, weight in cls.model.weights.items()
        }

    def write(self, name, files):
        return write(self.work / name, files, self.model.config)


class Accepted(Inputs):
    def single_file(self):
        return 4, [self.write("single", grouped(self.tensors, 1)) / "model-00001-of-00001.safetensors"]

    def one_file_on_8_ranks(self):
        return 8, [self.write("eight", grouped(self.tensors, 1)), "--assign", "auto"]

    def more_ranks_than_files(self):
        return 4, [self.write("few", grouped(self.tensors, 2))]

    def list_of_files_out_of_order_with_spaces(self):
        groups = grouped(self.tensors, 3).values()
        files = {f"part {i} of the model.safetensors": group for i, group in enumerate(groups)}
        directory = self.write("a list of files", files)
        return 2, [directory / name for name in reversed(files)]

    def index(self):
        return 2, [self.write("index", grouped(self.tensors, 3)) / INDEX]

    def index_of_another_name(self):
        directory = self.write("other index", grouped(self.tensors, 3))
        (directory / INDEX).rename(directory / "llama.safetensors.index.json")
        # Not in the index, so not of the model.
        checkpoint.write_by_reference(directory / "extra.safetensors", {})
        return 2, [directory]

    def directory_without_index_named(self, name):
        directory = self.write(name, grouped(self.tensors, 3))
        (directory / INDEX).unlink()
        return directory

    def directory_without_index(self):
        directory = self.directory_without_index_named("plain")
        (directory / "tokenizer.json").write_text("{}", encoding="utf-8")
        return 2, [f"{directory}/"]

    def copy_beside_the_model(self):
        directory = self.directory_without_index_named("copy")
        copy = {"tok_embeddings.weight": self.tensors["model.embed_tokens.weight"]}
        checkpoint.write_by_reference(directory / "consolidated.safetensors", copy)
        return 2, [directory]

    def adapter_beside_the_model(self):
        directory = self.directory_without_index_named("adapter")
        lora = {"base_model.model.model.norm.lora_A.weight": self.tensors["model.norm.weight"]}
        checkpoint.write_by_reference(directory / "adapter_model.safetensors", lora)
        return 2, [directory]

    def adapter_under_another_name(self):
        directory = self.directory_without_index_named("unnamed")
        lora = {"model.norm.lora_A.weight": self.tensors["model.norm.weight"]}
        checkpoint.write_by_reference(directory / "extra.safetensors", lora)
        return 2, [directory]

    def file_beside_the_index(self):
        directory = self.write("side", grouped(self.tensors, 3))
        stale = {"model.norm.weight": self.tensors["lm_head.weight"]}
        checkpoint.write_by_reference(directory / "stale.safetensors", stale)
        return 2, [directory]

    def stale_copy_of_a_tensor(self):
        files = grouped(self.tensors, 3)
        directory = self.write("twin", files)
        stale = self.tensors["model.layers.0.input_layernorm.weight"]
        other = next(name for name, group in files.items() if "model.norm.weight" not in group)
        checkpoint.write_by_reference(
            directory / other, {**files[other], "model.norm.weight": stale}
        )
        return 2, [directory]

    def tensors_of_the_index_that_are_skipped(self):
        directory = self.write("ghost", grouped(self.tensors, 3))
        index = json.loads((directory / INDEX).read_text(encoding="utf-8"))
        index["weight_map"]["mtp.fc.weight"] = "model-00001-of-00003.safetensors"
        (directory / INDEX).write_text(json.dumps(index), encoding="utf-8")
        return 2, [directory, "--skip", "mtp.*"]

    def hugging_face_cache(self):
        """snapshots/REVISION/NAME → ../../blobs/HASH, config and index too."""
        cache = self.work / "models--org--a model"
        snapshot = self.write("models--org--a model/snapshots/0f1e", grouped(self.tensors, 3))
        (cache / "blobs").mkdir()
        for number, path in enumerate(sorted(snapshot.iterdir())):
            blob = cache / "blobs" / f"{number:064x}"
            path.rename(blob)
            path.symlink_to(Path("../../blobs") / blob.name)
        link = self.work / "link to the model"
        link.symlink_to(snapshot)
        return 4, [link]

    def root_of_a_hugging_face_cache(self):
        root = self.work / "models--org--root"
        for revision in "0f1e", "2d3c":
            self.write(f"models--org--root/snapshots/{revision}", grouped(self.tensors, 2))
        (root / "snapshots" / "2d3c" / "config.json").unlink()
        (root / "refs").mkdir()
        (root / "refs" / "main").write_text("0f1e", encoding="utf-8")
        return 2, [root]

    def relative_path(self):
        directory = self.write("relative", grouped(self.tensors, 3))
        return 2, [os.path.relpath(directory)]

    def tiny_last_file(self):
        files = grouped(self.tensors, 4)
        first, *_, last = files
        files[first].update(files[last])
        norm = "model.norm.weight"
        files = {name: {n: t for n, t in f.items() if n != norm} for name, f in files.items()}
        files[last] = {norm: self.tensors[norm]}
        return 4, [self.write("tiny", files)]

    def files_500(self):
        return 4, [self.write("many", grouped(self.tensors, 500)), "--window", "16KiB"]

    def test_accepted(self):
        builders = [
            self.single_file, self.one_file_on_8_ranks, self.more_ranks_than_files,
            self.list_of_files_out_of_order_with_spaces, self.index, self.index_of_another_name,
            self.directory_without_index, self.tensors_of_the_index_that_are_skipped, self.hugging_face_cache, self.root_of_a_hugging_face_cache, self.relative_path,
            self.tiny_last_file, self.files_500,
        ]  # fmt: skip
        cases = [(builder.__name__, *builder()) for builder in builders]
        for (name, ranks, _), result in zip(cases, command.for_each(self.load, cases)):
            with self.subTest(name):
                self.assertEqual(result.returncode, 0, result.stderr)
                self.compare(name, ranks)

    def test_accepted_with_a_warning(self):
        builders = {
            self.copy_beside_the_model: "left out as a second copy .*: consolidated.safetensors",
            self.adapter_beside_the_model: "left out as an adapter .*: adapter_model.safetensors",
            self.adapter_under_another_name: "left out as an adapter .*: extra.safetensors",
            self.file_beside_the_index: "left out because the index .*: stale.safetensors",
            self.stale_copy_of_a_tensor: "left out because the index .*: 'model.norm.weight' in ",
        }
        cases = [(builder.__name__, *builder()) for builder in builders]
        results = command.for_each(self.load, cases)
        for (name, ranks, paths), result, text in zip(cases, results, builders.values()):
            with self.subTest(name):
                self.assertEqual(result.returncode, 0, result.stderr)
                self.compare(name, ranks)
                warning = "safeshuffle: warning: " + text
                self.assertEqual(len(re.findall(warning, result.stderr)), 1, result.stderr)
                report = json.loads((self.work / f"{name}.json").read_text(encoding="utf-8"))
                self.assertRegex("\n".join(report["warnings"]), text)
                planned = command.run("plan", paths[0], "--world", 2, "--json")
                self.assertRegex(planned.stderr, warning)
                self.assertEqual(json.loads(planned.stdout)["warnings"], report["warnings"])
                self.assertRegex(command.run("inspect", paths[0]).stderr, warning)

    def load(self, case):
        name, ranks, arguments = case
        outputs = "--save-sharded", self.work / f"saved {name}", "--report", self.work / f"{name}.json"
        return command.run_ranks(ranks, "load", *arguments, *outputs)

    def compare(self, name, world):
        for rank in range(world):
            path = self.work / f"saved {name}" / f"model-rank-{rank}-part-0.safetensors"
            actual = {n: (t.shape, t.data) for n, t in checkpoint.read(path).items()}
            expected = {n: self.shard(n, rank, world) for n in self.tensors}
            self.assertEqual(actual.keys(), expected.keys())
            self.assertEqual([n for n in expected if actual[n] != expected[n]], [])

    def shard(self, name, rank, world):
        shard = models.shard(self.tensors[name], self.model.weights[name], rank, world)
        return shard.shape, shard.data


class Refused(Inputs):
    """Each case spoils a good checkpoint: (what is done to it, exit code, what the message says)."""

    def edit_index(self, directory, edit):
        index = json.loads((directory / INDEX).read_text(encoding="utf-8"))
        edit(index)
        (directory / INDEX).write_text(json.dumps(index), encoding="utf-8")

    def file_missing(self, d):
        (d / "model-00002-of-00003.safetensors").unlink()
        return IO_ERROR, "model-00002-of-00003.safetensors.*No such file"

    def file_missing_without_index(self, d):
        (d / INDEX).unlink()
        (d / "model-00002-of-00003.safetensors").unlink()
        return IO_ERROR, "files are missing .*: model-00002-of-00003.safetensors;"

    def part_of_a_rank_missing(self, d):
        for number in 0, 2:
            path = d / f"model-0000{number + 1}-of-00003.safetensors"
            path.rename(d / f"model-rank-0-part-{number}.safetensors")
        (d / "model-00002-of-00003.safetensors").unlink()
        return IO_ERROR, "files are missing .*: model-rank-0-part-1.safetensors;"

    def adapter_only(self, d):
        for path in d.glob("model-*"):
            path.unlink()
        (d / INDEX).unlink()
        checkpoint.write_by_reference(d / "adapter_model.safetensors", {})
        return IO_ERROR, "only an adapter, not the model .*: adapter_model.safetensors"

    def link_to_nothing(self, d):
        (d / "model-00002-of-00003.safetensors").unlink()
        (d / "model-00002-of-00003.safetensors").symlink_to("../nowhere")
        return IO_ERROR, "model-00002-of-00003.safetensors.*No such file"

    def index_names_a_tensor_that_no_file_has(self, d):
        self.edit_index(d, lambda i: i["weight_map"].update(
            {"ghost": "model-00001-of-00003.safetensors"}))  # fmt: skip
        return FORMAT_ERROR, "ghost.*no file has it.*--skip"

    def index_lacks_a_tensor(self, d):
        self.edit_index(d, lambda i: i["weight_map"].pop("model.norm.weight"))
        return FORMAT_ERROR, "model.norm.weight.*does not name it"

    def index_names_the_wrong_file(self, d):
        def swap(index):
            name = "model.norm.weight"
            other = {"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors"}
            index["weight_map"][name] = (other - {index["weight_map"][name]}).pop()

        self.edit_index(d, swap)
        return FORMAT_ERROR, "model.norm.weight.*but the tensor is in"

    def index_points_outside(self, d):
        self.edit_index(d, lambda i: i["weight_map"].update({"out": "../out.safetensors"}))
        return FORMAT_ERROR, "index.json.*out.*not in the directory"

    def index_truncated(self, d):
        text = (d / INDEX).read_bytes()
        (d / INDEX).write_bytes(text[: len(text) // 2])
        return FORMAT_ERROR, "index.json.*JSON"

    def index_names_a_tensor_twice(self, d):
        text = (d / INDEX).read_text(encoding="utf-8")
        twice = text.replace('"weight_map": {', '"weight_map": {"model.norm.weight": "x",')
        (d / INDEX).write_text(twice, encoding="utf-8")
        return FORMAT_ERROR, "model.norm.weight.*twice"

    def index_with_merge_conflict(self, d):
        (d / INDEX).write_text("<<<<<<< ours\n" + (d / INDEX).read_text(encoding="utf-8"))
        return FORMAT_ERROR, "index.json.*JSON"

    def index_without_weight_map(self, d):
        (d / INDEX).write_text('{"metadata": {}}', encoding="utf-8")
        return FORMAT_ERROR, "index.json.*weight_map"

    def tensor_in_two_files(self, d):
        (d / INDEX).unlink()
        copy = {"model.norm.weight": self.tensors["model.norm.weight"]}
        checkpoint.write_by_reference(d / "z.safetensors", copy)
        return FORMAT_ERROR, "z.safetensors.*model.norm.weight.*is also in"

    def no_files(self, d):
        for path in d.iterdir():
            path.unlink()
        return IO_ERROR, "no .safetensors file"

    def git_lfs_pointer(self, d):
        pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"
        (d / "model-00002-of-00003.safetensors").write_bytes(pointer)
        return FORMAT_ERROR, "model-00002-of-00003.safetensors: .*Git LFS pointer.*'git lfs pull'"

    def html_page_for_an_index(self, d):
        (d / INDEX).write_text("<!doctype html><title>Sign in</title>", encoding="utf-8")
        return FORMAT_ERROR, "index.json: .*HTML page.*download it again"

    def error_message_for_a_file(self, d):
        message = '{"error":"Access to model org/name is restricted."}'
        (d / "model-00002-of-00003.safetensors").write_text(message, encoding="utf-8")
        return FORMAT_ERROR, "model-00002-of-00003.safetensors: .*is restricted"

    def git_lfs_pointer_for_config(self, d):
        (d / "config.json").write_text("version https://git-lfs.github.com/spec/v1\n", encoding="utf-8")
        return CONFIG_ERROR, "config.json: .*'git lfs pull'"

    def config_cut_off(self, d):
        (d / "config.json").write_text('{\n  "model_type": "llama",\n', encoding="utf-8")
        return CONFIG_ERROR, "config.json: line 3, column 1: the JSON text ends early"

    def config_missing(self, d):
        (d / "config.json").unlink()
        return CONFIG_ERROR, "config.json.* is missing or empty .copy the model's .*--tp-plan"

    def config_of_another_model(self, d):
        (d / "config.json").write_text('{"model_type": "bloom", "n_head": 4}', encoding="utf-8")
        return CONFIG_ERROR, "built-in rules 'bloom'.*no tensor of the checkpoint matches"

    def pytorch_files(self, d):
        for number, path in enumerate(sorted(d.glob("*.safetensors*"))):
            path.rename(d / f"pytorch_model-{number}.bin")
        return IO_ERROR, "no .safetensors file in the directory; other formats must be converted"

    def cache_of_several_revisions(self, d):
        for revision in "0f1e", "2d3c":
            (d / "snapshots" / revision).mkdir(parents=True)
        for path in d.glob("*.*"):
            path.rename(d / "snapshots" / "0f1e" / path.name)
        return IO_ERROR, "snapshots: .*several revisions.*: 0f1e, 2d3c"

    def file_is_a_directory(self, d):
        (d / "model-00002-of-00003.safetensors").unlink()
        (d / "model-00002-of-00003.safetensors").mkdir()
        return IO_ERROR, "model-00002-of-00003.safetensors.*not a regular file"

    def test_refused(self):
        spoilers = [
            self.file_missing, self.file_missing_without_index, self.part_of_a_rank_missing,
            self.adapter_only, self.link_to_nothing, self.index_names_a_tensor_that_no_file_has,
            self.index_lacks_a_tensor, self.index_names_the_wrong_file, self.index_points_outside,
            self.index_truncated, self.index_names_a_tensor_twice, self.index_with_merge_conflict,
            self.index_without_weight_map, self.tensor_in_two_files, self.no_files,
            self.git_lfs_pointer, self.file_is_a_directory, self.html_page_for_an_index,
            self.error_message_for_a_file, self.git_lfs_pointer_for_config, self.config_cut_off,
            self.config_missing, self.config_of_another_model, self.pytorch_files,
            self.cache_of_several_revisions,
        ]  # fmt: skip
        cases = [(spoil, self.write(spoil.__name__, grouped(self.tensors, 3))) for spoil in spoilers]
        expected = [spoil(directory) for spoil, directory in cases]
        for launch in (self.load, self.plan):
            for case, result, (code, message) in zip(cases, command.for_each(launch, cases), expected):
                with self.subTest(case[0].__name__, launch=launch.__name__):
                    self.assertEqual(result.returncode, code, result.stderr)
                    errors = [l for l in result.stderr.splitlines() if l.startswith("safeshuffle:")]
                    self.assertEqual(len(errors), 1, result.stderr)
                    self.assertRegex(errors[0], message)

    def test_inspect_shows_where_index_and_headers_disagree(self):
        directory = self.write("inspected", grouped(self.tensors, 3))
        file = "model-00001-of-00003.safetensors"
        ghosts = {f"ghost.{i}": file for i in range(10)}
        self.edit_index(directory, lambda index: index["weight_map"].update(ghosts))
        result = command.run("inspect", directory)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr.count("tensor 'ghost."), 8)
        self.assertIn("warning: index and headers disagree on 2 more tensors", result.stderr)

    def load(self, case):
        return command.run_ranks(2, "load", case[1])

    def plan(self, case):
        return command.run("plan", case[1], "--world", 2)


if __name__ == "__main__":
    unittest.main()
