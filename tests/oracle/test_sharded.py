"""A checkpoint saved with `--save-sharded` by one group, loaded by another of any size, gives every rank the
bytes that the reference library slices from the original files.
"""

import json
import shutil
import tempfile
import unittest
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

import checkpoint
import command
import sample
import test_load
from test_load import KIB, Case

SHARD = "model-rank-{}-part-0.safetensors"


def shards(directory, ranks):
    return [checkpoint.read(directory / SHARD.format(rank)) for rank in range(ranks)]


class Sharded(test_load.Load):
    # The tests of plain loads are not repeated.
    test_loads = test_the_sample_has_what_it_says = None
    test_oracle_slices_as_the_reference_library_does = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.by_four = cls.save(4, "keep")
        cls.by_three = cls.save(3, "f16")

    @classmethod
    def save(cls, ranks, dtype):
        rules = cls.rules["rules"]
        saved, _ = command.load(cls.work, ranks, cls.model, "--tp-plan", rules, "--dtype", dtype)
        return saved

    def test_any_world_to_any_world(self):
        cases = [
            (self.by_four, Case(1, "round-robin", "keep", 64 * KIB)),
            (self.by_four, Case(2, "round-robin", "f16", 4 * KIB)),
            (self.by_four, Case(3, "striped", "keep", 16 * KIB)),
            (self.by_four, Case(4, "round-robin", "keep", 64 * KIB)),
            (self.by_four, Case(5, "balanced", "f16", 64 * KIB)),
            (self.by_four, Case(8, "round-robin", "keep", 64 * KIB)),
            (self.by_three, Case(4, "round-robin", "f16", 4 * KIB)),
            (self.by_three, Case(2, "striped", "f16", 64 * KIB)),
            (self.by_four, Case(3, "round-robin", "keep", 64 * KIB, only=("*.colwise.*", "*row*"))),
            (self.by_four, Case(4, "round-robin", "f16", 64 * KIB, replicas=2)),
            (self.by_three, Case(6, "round-robin", "f16", 4 * KIB, replicas=2)),
        ]
        command.for_each(lambda pair: self.check(*pair), cases)

    def check(self, saved, case):
        loaded, report = command.load(
            self.work, case.ranks, saved, "--tp-plan", self.rules["rules"], "--assign", case.assign,
            "--dtype", case.dtype, "--window", case.window, "--replicas", case.replicas, *case.selection(),
        )  # fmt: skip
        for rank, actual in enumerate(shards(loaded, case.shards)):
            self.compare(actual, case, rank)
        planned = command.run(
            "plan", saved, "--tp-plan", self.rules["rules"], "--assign", case.assign, "--dtype", case.dtype,
            "--window", case.window, "--world", case.ranks, "--replicas", case.replicas, "--json",
            *case.selection(),
        )  # fmt: skip
        self.assertEqual(report["plan_hash"], json.loads(planned.stdout)["hash"])

    def test_the_same_world_needs_no_rules_and_reads_its_own_files_only(self):
        loaded, report = command.load(self.work, 4, self.by_four)
        self.assert_own_files(loaded, report)

    def test_replicas_of_the_same_world_read_every_file_once(self):
        loaded, report = command.load(self.work, 8, self.by_four, "--replicas", 2, "--assign", "round-robin")
        read = sorted(counts["read_bytes"] for counts in report["ranks"])
        sizes = []
        for rank in range(4):
            name = SHARD.format(rank)
            self.assertEqual((loaded / name).read_bytes(), (self.by_four / name).read_bytes())
            sizes.append(sum(len(t.data) for t in checkpoint.read(self.by_four / name).values()))
        self.assertEqual(read, [0] * 4 + sorted(sizes))
        for half in (report["ranks"][:4], report["ranks"][4:]):  # both replicas read
            self.assertGreater(sum(counts["read_bytes"] for counts in half), 0)
        self.assertEqual(sum(counts["sent_bytes"] for counts in report["ranks"]), sum(sizes))

    def assert_own_files(self, loaded, report):
        for rank, counts in enumerate(report["ranks"]):
            name = SHARD.format(rank)
            self.assertEqual((loaded / name).read_bytes(), (self.by_four / name).read_bytes())
            data = sum(len(tensor.data) for tensor in checkpoint.read(self.by_four / name).values())
            self.assertEqual(counts["read_bytes"], data)
            self.assertEqual(counts["sent_bytes"] + counts["received_bytes"], 0)

    def test_loaded_whole_and_saved_again_it_is_the_original(self):
        loaded, _ = command.load(self.work, 2, self.by_four, "--tp-plan", "replicate")
        for rank in range(2):
            for name, tensor in checkpoint.read(loaded / SHARD.format(rank)).items():
                self.assertEqual(tensor.data, self.tensors[name].data, name)

    def without_record(self, ranks):
        """Files as vLLM saves them."""
        directory = Path(tempfile.mkdtemp(dir=self.work))
        for rank in range(ranks):
            save_file({"w": np.full((4, rank + 2), rank, np.float32)}, directory / SHARD.format(rank))
        return directory

    def test_without_a_record_the_same_world_only(self):
        directory = self.without_record(2)
        loaded, report = command.load(self.work, 2, directory)
        self.assertEqual([rank["read_bytes"] for rank in report["ranks"]], [32, 48])
        again, _ = command.load(self.work, 2, loaded)
        for rank, tensors in enumerate(shards(again, 2)):
            self.assertEqual(tensors["w"].shape, (4, rank + 2))
        for ranks in (1, 3):
            result = command.run_ranks_to_the_end(ranks, "load", directory)
            self.assertEqual(command.exit_codes(result), {5}, result.stderr)
            self.assertIn("saved by a group of 2 ranks without a record", result.stderr)

    def test_without_a_record_no_rank_writes_one(self):
        """Not even one that has none of the selected tensors."""
        directory = self.without_record(2)
        save_file({"other": np.zeros(3, np.float32)}, directory / SHARD.format(1))
        loaded, _ = command.load(self.work, 2, directory, "--only", "w")
        again, _ = command.load(self.work, 2, loaded)
        self.assertEqual([list(tensors) for tensors in shards(again, 2)], [["w"], []])

    def test_records_that_are_not_possible(self):
        record = {"version": 1, "rank": 0, "world": 2, "shards": {}}
        shard = {"shape": [8], "axis": 0, "intervals": [[0, 4]]}
        for wrong, cause in (
            ({"rank": -1}, "the record of its shards is not valid"),
            ({"shards": {"gone": shard}}, "the file does not have it"),
            ({"shards": {"w": {**shard, "axis": 1}}}, "it is not the shard that the file's record says"),
        ):
            directory = Path(tempfile.mkdtemp(dir=self.work))
            for rank in range(2):
                text = json.dumps({**record, "rank": rank, **(wrong if rank == 0 else {})})
                save_file(
                    {"w": np.zeros(4, np.float32)}, directory / SHARD.format(rank), {"safeshuffle.shards": text}
                )
            result = command.run_ranks_to_the_end(2, "load", directory, "--tp-plan", "replicate")
            self.assertEqual(command.exit_codes(result), {4}, result.stderr)
            self.assertIn(SHARD.format(0), result.stderr)
            self.assertIn(cause, result.stderr)

    def test_missing_files_of_a_huge_group(self):
        directory = Path(tempfile.mkdtemp(dir=self.work))
        save_file({"w": np.zeros(4, np.float32)}, directory / SHARD.format(2**32 - 2))
        result = command.measure("plan", directory, "--world", 2, "--tp-plan", "replicate")
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("no files of ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4294967286 more", result.stderr)
        self.assertLess(result.max_rss_bytes, 400 << 20)

    def test_missing_files(self):
        directory = Path(tempfile.mkdtemp(dir=self.work))
        for rank in (0, 3):
            shutil.copy(self.by_four / SHARD.format(rank), directory)
        result = command.run_ranks_to_the_end(2, "load", directory, "--tp-plan", "replicate")
        self.assertEqual(command.exit_codes(result), {3}, result.stderr)
        self.assertIn("there are no files of ranks 1, 2", result.stderr)


if __name__ == "__main__":
    unittest.main()
