"""`load --save-sharded` gives every rank the bytes that the reference library slices from the files."""

import tempfile
import unittest
from pathlib import Path

import numpy as np
from safetensors import safe_open

import command
import placement
import sample

# (ranks, assignment, conversion, window). Windows of 4 KiB make hundreds of waves and split tensors.
LOADS = [
    (1, "round-robin", "keep", "4KiB"),
    (1, "auto", "f16", "1MiB"),
    (2, "round-robin", "keep", "1MiB"),
    (2, "balanced", "f16", "4KiB"),
    (3, "striped", "bf16", "4KiB"),
    (3, "auto", "f32", "64KiB"),
    (4, "round-robin", "f16", "64KiB"),
    (4, "striped", "keep", "1MiB"),
    (5, "round-robin", "keep", "4KiB"),
    (5, "balanced", "bf16", "64KiB"),
    (5, "striped", "f32", "4KiB"),
]

NUMPY_TYPES = {"I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64", "F16", "F32", "F64", "BOOL"}


class Load(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(directory := tempfile.TemporaryDirectory())
        cls.work = Path(directory.name)
        cls.model = cls.work / "a model"
        cls.model.mkdir()
        cls.tensors, cls.file_of = sample.write(cls.model)
        cls.rules = cls.work / "rules.json"
        sample.write_rules(cls.rules)

    def test_loads(self):
        for ranks, assignment, dtype, window in LOADS:
            with self.subTest(ranks=ranks, assign=assignment, dtype=dtype, window=window):
                saved = self.load(ranks, assignment, dtype, window)
                for rank in range(ranks):
                    self.compare(saved, rank, ranks, dtype)

    def load(self, ranks, assignment, dtype, window):
        """Returns the directory of the saved shards."""
        saved = Path(tempfile.mkdtemp(dir=self.work))
        result = command.run_ranks(
            ranks, "load", self.model, "--tp-plan", self.rules, "--assign", assignment,
            "--dtype", dtype, "--window", window, "--save-sharded", saved, "--progress", "none",
        )  # fmt: skip
        self.assertEqual(result.returncode, 0, result.stderr)
        names = [f"model-rank-{rank}-part-0.safetensors" for rank in range(ranks)]
        self.assertEqual(sorted(path.name for path in saved.iterdir()), names)
        return saved

    def compare(self, saved, rank, world, dtype):
        actual = sample.checkpoint.read(saved / f"model-rank-{rank}-part-0.safetensors")
        self.assertEqual(sorted(actual), sorted(self.tensors))
        wrong = []
        for name, tensor in self.tensors.items():
            shard = placement.shard(tensor, sample.word_of(name), rank, world)
            expected = placement.convert(shard, dtype)
            self.assertEqual(
                (actual[name].dtype, actual[name].shape), (expected.dtype, expected.shape), name
            )
            if not placement.same_values(actual[name], expected):
                wrong.append(name)
        self.assertEqual(wrong, [], f"rank {rank} of {world}: other bytes than the reference's")

    def test_oracle_slices_as_the_reference_library_does(self):
        """The slicing that the loads are compared with is itself compared with the library's."""
        compared = 0
        for name, tensor in self.tensors.items():
            word = sample.word_of(name)
            axis = placement.axis_of(word, tensor.shape)
            if tensor.dtype not in NUMPY_TYPES or axis is None or 0 in tensor.shape:
                continue
            for rank in range(5):
                ours = placement.shard(tensor, word, rank, 5)
                self.assertEqual(ours.data, self.reference_slice(name, axis, word, rank, 5), name)
                compared += 1
        self.assertGreater(compared, 1000)

    def reference_slice(self, name, axis, word, rank, world):
        with safe_open(self.model / self.file_of[name], "np") as file:
            tensor = file.get_slice(name)
            kept = placement.intervals(word, tensor.get_shape()[axis], rank, world)
            before = (slice(None),) * axis
            pieces = [tensor[(*before, slice(begin, end))] for begin, end in kept if begin < end]
            return np.concatenate(pieces, axis=axis).tobytes() if pieces else b""


if __name__ == "__main__":
    unittest.main()
