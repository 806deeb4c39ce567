"""`load --save-sharded` gives every rank the bytes that the reference library slices from the files.

Environment, beyond that of command.py, for devices other than the host: LOAD_OPTIONS, of every
load; MOST_RANKS and LEAST_WINDOW, in bytes, to leave out what takes too long.
"""

import json
import os
import tempfile
import unittest
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import numpy as np
from safetensors import safe_open

import checkpoint
import command
import placement
import sample

KIB, MIB = 1 << 10, 1 << 20
LOAD_OPTIONS = os.environ.get("LOAD_OPTIONS", "").split()
MOST_RANKS = int(os.environ.get("MOST_RANKS", "8"))
LEAST_WINDOW = int(os.environ.get("LEAST_WINDOW", "0"))


@dataclass(frozen=True)
class Case:
    """One load. Windows of 4 KiB make hundreds of waves and split tensors."""

    ranks: int
    assign: str
    dtype: str
    window: int
    options: str = ""
    form: str = "rules"  # of the rule file
    only: tuple = ()
    skip: tuple = ()
    replicas: int = 1
    order: str = "file"

    @property
    def shards(self):
        """Ranks of one replica, which is what is saved."""
        return self.ranks // self.replicas

    def selects(self, name):
        """Of a tensor; by the patterns of Python's shell."""
        chosen = not self.only or any(fnmatchcase(name, pattern) for pattern in self.only)
        return chosen and not any(fnmatchcase(name, pattern) for pattern in self.skip)

    def selection(self):
        """As the command takes it."""
        chosen = [word for pattern in self.only for word in ("--only", pattern)]
        return chosen + [word for pattern in self.skip for word in ("--skip", pattern)]


CASES = [
    Case(1, "round-robin", "keep", 4 * KIB, "--threads 3"),
    Case(1, "auto", "f16", MIB, "--direct on --chunk 4KiB"),
    Case(2, "round-robin", "keep", MIB, "--direct on --threads 3", "bare"),
    Case(2, "balanced", "f16", 4 * KIB, "--threads 1"),
    Case(3, "striped", "bf16", 4 * KIB, "--chunk 4KiB"),
    Case(3, "auto", "f32", 64 * KIB, "--direct on --chunk 4KiB --threads 3", "bare"),
    Case(4, "round-robin", "f16", 64 * KIB, "--direct off --threads 1"),
    Case(4, "striped", "keep", MIB, "--chunk 4KiB --threads 3"),
    Case(5, "round-robin", "keep", 4 * KIB, "--direct on"),
    Case(5, "balanced", "bf16", 64 * KIB, "--chunk 5000"),
    Case(5, "striped", "f32", 10_000, "--threads 1", "bare"),
    Case(8, "auto", "keep", 64 * KIB, "--threads 1"),
    Case(1, "round-robin", "keep", MIB, only=("*.large",)),
    Case(2, "balanced", "f16", 64 * KIB, only=("*.colwise.*", "*row*"), skip=("*.[bs]*", "layers.3*")),
    Case(3, "striped", "keep", 4 * KIB, skip=("*.large", "model.layers.??.*", "every.*"), order="layer"),
    Case(4, "round-robin", "f16", 64 * KIB, only=("*.rowwise.*",)),
    Case(2, "sliced", "keep", 64 * KIB, "--direct on"),
    Case(3, "sliced", "f16", 4 * KIB),
    Case(5, "sliced", "keep", 64 * KIB, order="layer"),
    Case(8, "sliced", "f16", MIB, "--direct off", replicas=2),
    Case(2, "mixed", "keep", MIB),
    Case(4, "mixed", "f16", 64 * KIB, "--direct on"),
    Case(2, "round-robin", "keep", 64 * KIB, replicas=2),
    Case(4, "round-robin", "keep", 4 * KIB, "--direct on", replicas=2),
    Case(4, "striped", "f16", 64 * KIB, only=("*.colwise.*", "*row*"), replicas=4, order="layer"),
    Case(6, "balanced", "f16", 64 * KIB, replicas=2),
    Case(8, "auto", "keep", 64 * KIB, replicas=4),
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
        cls.rules = sample.write_rules(cls.work)

    def test_loads(self):
        for case in (case for case in CASES if case.ranks <= MOST_RANKS):
            with self.subTest(case):
                saved = self.load(case)
                ranks = [checkpoint.read(path) for path in saved]
                for rank, actual in enumerate(ranks):
                    self.compare(actual, case, rank)
                self.assert_same_on_all(ranks)

    def load(self, case):
        """Returns the paths of the saved shards."""
        saved = Path(tempfile.mkdtemp(dir=self.work))
        report = self.work / "report.json"
        choices = [
            self.model, "--tp-plan", self.rules[case.form], "--assign", case.assign,
            "--dtype", case.dtype, "--window", max(case.window, LEAST_WINDOW),
            "--replicas", case.replicas, "--order", case.order, *case.selection(),
        ]  # fmt: skip
        result = command.run_ranks(
            case.ranks, "load", *choices, *case.options.split(), *LOAD_OPTIONS,
            "--save-sharded", saved, "--verify", "full", "--report", report,
        )  # fmt: skip
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(f"\nsaved {case.shards} file", result.stdout)
        if case.assign != "mixed":  # its plan depends on the device, and on what is cached right now
            planned = command.run("plan", *choices, "--world", case.ranks, "--json")
            self.assert_as_planned(report, planned, case)
        self.assert_only_needed_is_read(report, case)
        names = [f"model-rank-{rank}-part-0.safetensors" for rank in range(case.shards)]
        self.assertEqual(sorted(path.name for path in saved.iterdir()), names)
        return [saved / name for name in names]

    def assert_as_planned(self, report, planned, case):
        report, plan = json.loads(report.read_text(encoding="utf-8")), json.loads(planned.stdout)
        self.assertEqual((report["plan_hash"], report["waves"]), (plan["hash"], plan["waves"]))
        for loaded, rank in zip(report["ranks"], plan["ranks"], strict=True):
            for count in ("sent_bytes", "received_bytes", "kept_bytes"):
                self.assertEqual(loaded[count], rank[count], count)
            if case.assign == "sliced" and "--direct on" not in case.options:  # most gaps are not read
                self.assertLessEqual(loaded["read_bytes"], rank["read_bytes"])
            else:
                self.assertEqual(loaded["read_bytes"], rank["read_bytes"])
            self.assertEqual(
                loaded["io"]["direct_bytes"] + loaded["io"]["buffered_bytes"], loaded["read_bytes"]
            )
            beside = loaded["transport_device_bytes"] + loaded["packer_device_bytes"]
            planned = loaded["peak_device_bytes"] - beside
            self.assertEqual(planned, rank["peak_device_bytes"])

    def assert_only_needed_is_read(self, report, case):
        ranks = range(case.shards)
        needed = sum(
            len(tensor.data)
            for name, tensor in self.tensors.items()
            if case.selects(name)
            and any(placement.holds(sample.style_of(name, case.form), rank) for rank in ranks)
        )
        loaded = json.loads(report.read_text(encoding="utf-8"))
        self.assertEqual(loaded["tensor_bytes"], needed)
        read = sum(rank["read_bytes"] for rank in loaded["ranks"])
        if case.assign in ("sliced", "mixed"):  # several ranks may need the same
            self.assertGreaterEqual(read, needed)
        else:
            self.assertEqual(read, needed)
        if case.assign == "sliced":
            self.assertEqual(sum(rank["received_bytes"] for rank in loaded["ranks"]), 0)

    def compare(self, actual, case, rank):
        held = {
            name: tensor
            for name, tensor in self.tensors.items()
            if case.selects(name) and placement.holds(sample.style_of(name, case.form), rank)
        }
        self.assertEqual(sorted(actual), sorted(held))
        wrong = []
        for name, tensor in held.items():
            expected = placement.convert(self.shard(name, case, rank), case.dtype)
            self.assertEqual(
                (actual[name].dtype, actual[name].shape), (expected.dtype, expected.shape), name
            )
            if not placement.same_values(actual[name], expected, tensor.dtype):
                wrong.append(name)
        self.assertEqual(wrong, [], f"rank {rank}: other bytes than the reference's")

    def shard(self, name, case, rank):
        return self.cached_shard(name, sample.style_of(name, case.form), rank, case.shards)

    @classmethod
    @cache
    def cached_shard(cls, name, style, rank, world):
        return placement.shard(cls.tensors[name], style, rank, world)

    def assert_same_on_all(self, ranks):
        """Also where several results are right."""
        for name in ranks[0]:
            if name.startswith("every."):
                self.assertEqual(len({actual[name].data for actual in ranks}), 1, name)

    def test_streams(self):
        """Group by group, nothing left out; what each group has is compared with the files by --verify."""
        kept = [t for name, t in self.tensors.items() if placement.holds(sample.style_of(name, "rules"), 0)]
        stored = sum(len(tensor.data) for tensor in kept)
        for ranks in (ranks for ranks in (1, 2, 3, 4, 5, 8) if ranks <= MOST_RANKS):
            for dtype in ("keep", "f16"):
                result = command.run_ranks(
                    ranks, "load", self.model, "--tp-plan", self.rules["rules"], "--dtype", dtype,
                    "--window", max(64 * KIB, LEAST_WINDOW), *LOAD_OPTIONS, "--stream", MIB, "--verify", "full",
                    "--progress", "json",
                )  # fmt: skip
                with self.subTest(ranks=ranks, dtype=dtype):
                    self.assertEqual(result.returncode, 0, result.stderr)
                    done = json.loads(result.stdout.splitlines()[-1])
                    self.assertEqual(done["tensor_bytes"], stored)
                    self.assertTrue(done["verified"])

    def test_the_sample_has_what_it_says(self):
        dtypes = {tensor.dtype for tensor in self.tensors.values()}
        self.assertEqual(dtypes, set(checkpoint.BITS))
        sizes = [checkpoint.header_bytes(path) for path in sorted(self.model.glob("*.safetensors"))]
        self.assertEqual({size % 16 for size in sizes}, set(range(16)))
        self.assertLessEqual({0, 1, 4095}, {size % 4096 for size in sizes})
        self.assertLess(4 * 4096, max(len(tensor.data) for tensor in self.tensors.values()))

    def test_oracle_slices_as_the_reference_library_does(self):
        """The slicing that the loads are compared with is itself compared with the library's."""
        compared = 0
        for name, tensor in self.tensors.items():
            style = sample.style_of(name)
            axis = placement.axis_of(style, tensor.shape)
            if tensor.dtype not in NUMPY_TYPES or axis is None or 0 in tensor.shape:
                continue
            for rank in range(5):
                ours = placement.shard(tensor, style, rank, 5)
                self.assertEqual(ours.data, self.reference_slice(name, axis, style, rank, 5), name)
                compared += 1
        self.assertGreater(compared, 1000)

    def reference_slice(self, name, axis, style, rank, world):
        with safe_open(self.model / self.file_of[name], "np") as file:
            tensor = file.get_slice(name)
            kept = placement.intervals(style, tensor.get_shape()[axis], rank, world)
            before = (slice(None),) * axis
            pieces = [tensor[(*before, slice(begin, end))] for begin, end in kept if begin < end]
            return np.concatenate(pieces, axis=axis).tobytes() if pieces else b""


if __name__ == "__main__":
    unittest.main()
