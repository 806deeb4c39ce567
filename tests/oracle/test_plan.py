"""`plan --json` counts the bytes that an independent computation counts."""

import json
import tempfile
import unittest
from pathlib import Path

import command
import placement
import sample

ASSIGNMENTS = ("round-robin", "balanced", "striped", "sliced", "mixed", "auto")
COUNTS = ("read_bytes", "sent_bytes", "received_bytes", "kept_bytes")


class Plan(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(directory := tempfile.TemporaryDirectory())
        work = Path(directory.name)
        cls.model = work / "model"
        cls.model.mkdir()
        cls.tensors, cls.file_of = sample.write(cls.model)
        cls.files = sorted(set(cls.file_of.values()))
        cls.rules = sample.write_rules(work)["rules"]

    def plan(self, world, assignment, dtype, window="64KiB"):
        result = command.run(
            "plan", self.model, "--world", world, "--tp-plan", self.rules, "--dtype", dtype,
            "--assign", assignment, "--window", window, "--json",
        )  # fmt: skip
        self.assertEqual(result.returncode, 0, result.stderr)
        plan = json.loads(result.stdout)
        self.assertEqual(plan["world"], world)
        self.assertEqual(plan["proof"], "ok")
        self.assertEqual([rank["rank"] for rank in plan["ranks"]], list(range(world)))
        return plan

    def shard_bytes(self, name, rank, world, dtype):
        style = sample.style_of(name)
        if not placement.holds(style, rank):
            return 0
        shard = placement.shard(self.tensors[name], style, rank, world)
        return placement.converted_bytes(shard, dtype)

    def read_bytes(self, name):
        """What no rank keeps is not read."""
        return len(self.tensors[name].data) if placement.holds(sample.style_of(name), 0) else 0

    def expected(self, readers, world, dtype):
        """Counts per rank, where `readers` maps each file to the rank that reads it."""
        ranks = [dict.fromkeys(COUNTS, 0) for _ in range(world)]
        for name in self.tensors:
            reader = readers[self.file_of[name]]
            ranks[reader]["read_bytes"] += self.read_bytes(name)
            for rank in range(world):
                size = self.shard_bytes(name, rank, world, dtype)
                ranks[rank]["kept_bytes"] += size
                if rank != reader:
                    ranks[reader]["sent_bytes"] += size
                    ranks[rank]["received_bytes"] += size
        return ranks

    def kind(self, name):
        style = sample.style_of(name)
        if style.holders is not None:
            return "single" if style.holders else "dropped"
        whole = placement.axis_of(style, self.tensors[name].shape) is None
        return "replicated" if whole else "partitioned"

    def test_placement(self):
        expected = {
            kind: {"tensors": 0, "bytes": 0}
            for kind in ("partitioned", "replicated", "single", "dropped")
        }
        for name, tensor in self.tensors.items():
            expected[self.kind(name)]["tensors"] += 1
            expected[self.kind(name)]["bytes"] += len(tensor.data)
        self.assertEqual(self.plan(4, "round-robin", "f16")["placement"], expected)

    def assert_counts(self, plan, expected):
        actual = [{count: rank[count] for count in COUNTS} for rank in plan["ranks"]]
        self.assertEqual(actual, expected)

    def test_round_robin(self):
        for world in (1, 2, 3, 4, 5):
            for dtype in ("keep", "f16", "f32"):
                with self.subTest(world=world, dtype=dtype):
                    readers = {file: i % world for i, file in enumerate(self.files)}
                    plan = self.plan(world, "round-robin", dtype)
                    self.assert_counts(plan, self.expected(readers, world, dtype))

    def test_balanced(self):
        """Largest file first, each to the rank with the fewest bytes so far."""
        sizes = dict.fromkeys(self.files, 0)
        for name in self.tensors:
            sizes[self.file_of[name]] += self.read_bytes(name)
        for world in (2, 4):
            loads, readers = [0] * world, {}
            for file in sorted(self.files, key=lambda file: -sizes[file]):
                readers[file] = loads.index(min(loads))
                loads[readers[file]] += sizes[file]
            with self.subTest(world=world):
                plan = self.plan(world, "balanced", "keep")
                self.assert_counts(plan, self.expected(readers, world, "keep"))

    def test_every_assignment_reads_all_and_keeps_the_same(self):
        total = sum(self.read_bytes(name) for name in self.tensors)
        for assignment in ASSIGNMENTS:
            with self.subTest(assignment):
                ranks = self.plan(5, assignment, "bf16")["ranks"]
                read = sum(rank["read_bytes"] for rank in ranks)
                if assignment == "sliced":  # several ranks may need the same
                    self.assertGreaterEqual(read, total)
                else:
                    self.assertEqual(read, total)
                sent, received, kept = (sum(r[c] for r in ranks) for c in COUNTS[1:])
                self.assertEqual(sent, received)
                self.assertLess(received, kept)
                for rank in ranks:
                    names = self.tensors
                    expected = sum(self.shard_bytes(n, rank["rank"], 5, "bf16") for n in names)
                    self.assertEqual(rank["kept_bytes"], expected)

    def test_smaller_windows_take_more_waves_and_less_memory(self):
        small = self.plan(3, "round-robin", "keep", "4KiB")
        large = self.plan(3, "round-robin", "keep", "1MiB")
        self.assertGreater(small["waves"], large["waves"])
        self.assertGreaterEqual(large["waves"], 1)
        for less, more in zip(small["ranks"], large["ranks"]):
            self.assertLess(less["peak_device_bytes"], more["peak_device_bytes"])
            self.assertGreater(less["peak_device_bytes"], less["kept_bytes"])


if __name__ == "__main__":
    unittest.main()
