"""The example programs, run as their comments say: what they print and how they end.

Environment: SAFESHUFFLE, the command; MPIEXEC, the launcher with {ranks} where the number goes;
LOAD_MPI, OWN_PARAMETERS, PIPELINE, RANDOM_ACCESS and LOAD_NCCL, the examples, of which any may be absent; RANK_WRAPPER, a program that
becomes one of them, INJECT, the library made of tests/fault/inject.cpp, and DEVICE, what load_mpi is
to say it loaded onto, all optional.
"""

import json
import os
import subprocess
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TIMEOUT_SECONDS = 60
IO_ERROR = 3


def wrapped(program):
    return [*os.environ.get("RANK_WRAPPER", "").split(), program]


def run(command, **environment):
    return subprocess.run(
        list(map(str, command)), env=os.environ | environment, timeout=TIMEOUT_SECONDS,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


class Example(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(directory := tempfile.TemporaryDirectory(prefix="safeshuffle-"))
        cls.model = Path(directory.name) / "model"
        command = os.environ["SAFESHUFFLE"]
        made = run([command, "make", cls.model, "--like", "llama-2-70b", "--scale", "0.0001"])
        assert made.returncode == 0, made.stderr
        cls.tensors = json.loads(run([command, "inspect", cls.model, "--json"]).stdout)["files"]
        cls.tensors = {t["name"]: t for file in cls.tensors for t in file["tensors"]}

    def assert_lists_all(self, lines, ranks):
        """Name, dtype and, where a tensor is cut or not, its bytes."""
        listed = {line.split()[0]: line.split() for line in lines}
        self.assertEqual(set(listed), set(self.tensors))
        for name, tensor in self.tensors.items():
            words = listed[name]
            self.assertEqual(words[1], tensor["dtype"])
            size = int(words[words.index("bytes") - 1])
            self.assertIn(size, {tensor["bytes"], tensor["bytes"] // ranks})
        self.assertIn(f" {self.tensors['model.norm.weight']['bytes']} bytes",
                      " ".join(listed["model.norm.weight"]))  # fmt: skip

    def assert_fails_for_want_of_a_checkpoint(self, *results):
        errors = "".join(result.stderr for result in results)
        self.assertEqual({result.returncode for result in results}, {IO_ERROR}, errors)
        self.assertEqual(errors.count("/nonexistent: "), 1, errors)


def needs(example):
    return unittest.skipUnless(example in os.environ, f"without {example}")


def launch(example, ranks, *arguments):
    launcher = os.environ["MPIEXEC"].replace("{ranks}", str(ranks)).split()
    return run([*launcher, *wrapped(os.environ[example]), *arguments])


@needs("LOAD_MPI")
class LoadMpi(Example):
    def launch(self, ranks, path):
        return launch("LOAD_MPI", ranks, path)

    def test_loads(self):
        result = self.launch(2, self.model)
        self.assertEqual(result.returncode, 0, result.stderr)
        first, *lines = result.stdout.splitlines()
        self.assertIn(f"2 ranks on {os.environ.get('DEVICE', 'host')}, over ", first)
        self.assert_lists_all(lines, 2)

    def test_no_checkpoint(self):
        self.assert_fails_for_want_of_a_checkpoint(self.launch(2, "/nonexistent"))


class Sessions(Example):
    RANKS = 2

    def stored(self, name):
        """The bytes, as rows of a matrix."""
        for path in self.model.glob("*.safetensors"):
            data = path.read_bytes()
            end = 8 + int.from_bytes(data[:8], "little")
            if (tensor := json.loads(data[8:end]).get(name)) is not None:
                begin, stop = tensor["data_offsets"]
                row = (stop - begin) // tensor["shape"][0]
                return [data[end + at : end + at + row] for at in range(begin, stop, row)]
        raise KeyError(name)

    def own_rows(self, name, rank):
        rows = self.stored(name)
        return rows[len(rows) // self.RANKS * rank :][: len(rows) // self.RANKS]

    def lines(self, example, *arguments):
        result = launch(example, self.RANKS, self.model, *arguments)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout.splitlines()

    @needs("RANDOM_ACCESS")
    def test_random_access(self):
        def total(rows):
            return sum(map(sum, rows))

        down = "model.layers.0.mlp.down_proj.weight"
        gate, up = (f"model.layers.0.mlp.{part}_proj.weight" for part in ("gate", "up"))
        embedding, head, norm = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"
        expected = []
        for rank in range(self.RANKS):
            half = len(self.stored(down)[0]) // self.RANKS
            columns = [row[half * rank :][:half] for row in self.stored(down)]
            parts = self.own_rows(gate, rank) + self.own_rows(up, rank)
            slice_ = [row[2 * 4 : 6 * 4] for row in self.stored(embedding)[5:8]]  # of F32
            pushed = f" {head} [ 1600 512 ] sum {total(self.stored(head))}" if rank == 1 else ""
            expected += [
                f"rank {rank}: whole {norm} [ 512 ] sum {total(self.stored(norm))}",
                f"rank {rank}: own rows {embedding} [ 800 512 ] sum {total(self.own_rows(embedding, rank))}",
                f"rank {rank}: own columns {down} [ 512 224 ] sum {total(columns)}",
                f"rank {rank}: slice {embedding} [ 3 4 ] sum {total(slice_)}",
                f"rank {rank}: last rank only{pushed}",
                f"rank {rank}: joined {gate}+{up} [ 448 512 ] sum {total(parts)}",
            ]
        self.assertEqual(sorted(self.lines("RANDOM_ACCESS")), sorted(expected))

    @needs("OWN_PARAMETERS")
    def test_own_parameters(self):
        expected = []
        for rank in range(self.RANKS):
            names = [f"model.layers.0.self_attn.{part}_proj.weight" for part in "qkv"]
            rows = [row for name in names for row in self.own_rows(name, rank)]
            for when in ("at the start", "after a sleep"):
                expected.append(f"rank {rank}, {when}: sum {sum(map(sum, rows))}")
        self.assertEqual(sorted(self.lines("OWN_PARAMETERS")), sorted(expected))

    @needs("PIPELINE")
    def test_pipeline(self):
        spans = [line.split() for line in self.lines("PIPELINE", 1 << 20)]
        begins = {"read:": [], "computed:": []}
        for _, what, *_, begin, plus, seconds, unit in spans:
            self.assertEqual((plus, unit), ("+", "s"))
            begins[what].append(float(begin))
        layers = {name.split(".")[2] for name in self.tensors if ".layers." in name}
        self.assertEqual(len(begins["computed:"]), len(layers))
        self.assertLess(begins["computed:"][0], begins["read:"][-1])


@needs("LOAD_NCCL")
class LoadNccl(Example):
    def launch(self, ranks, path, **environment):
        """The results of all ranks."""
        command = [*wrapped(os.environ["LOAD_NCCL"]), path, self.model.parent / "id"]

        def run_rank(rank):
            return run(command, RANK=str(rank), WORLD_SIZE=str(ranks), **environment)

        with ThreadPoolExecutor(ranks) as pool:
            return list(pool.map(run_rank, range(ranks)))

    def test_loads(self):
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                results = self.launch(ranks, self.model)
                for result in results:
                    self.assertEqual((result.returncode, result.stderr), (0, ""))
                self.assert_lists_all(results[0].stdout.splitlines(), ranks)

    def test_no_checkpoint(self):
        for ranks in (1, 4):
            with self.subTest(ranks=ranks):
                self.assert_fails_for_want_of_a_checkpoint(*self.launch(ranks, "/nonexistent"))

    def test_usage(self):
        for arguments, rank in ([], 0), ([self.model], 0), ([self.model, "id"], 2), ([self.model, "id"], -1):
            result = run([os.environ["LOAD_NCCL"], *arguments], RANK=str(rank), WORLD_SIZE="2")
            self.assertEqual(result.returncode, 2)
            self.assertIn("usage: ", result.stderr)

    @unittest.skipUnless("INJECT" in os.environ, "no library that kills a rank")
    def test_a_rank_that_dies_in_a_load_is_named_by_the_others(self):
        """When it reads the header that falls to it."""
        for lost in (0, 2):
            with self.subTest(rank=lost):
                fault = f"call=pread path=model-{lost + 1:05}-of action=kill"
                results = self.launch(3, self.model, LD_PRELOAD=os.environ["INJECT"], FAULTS=fault)
                self.assertNotIn(0, [result.returncode for result in results])
                errors = "".join(result.stderr for result in results)
                self.assertEqual(errors.count(f"rank {lost}: "), 2, errors)


if __name__ == "__main__":
    unittest.main()
