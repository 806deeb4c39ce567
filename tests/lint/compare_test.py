"""scripts/compare: what it computes, compares and writes, without loading anything.

usage: compare_test.py SCRIPTS
"""

import json
import mmap
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

SCRIPTS = Path(sys.argv.pop())
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPTS))

from lib import page_cache  # noqa: E402
from lib.measure import environment, measurement, models, placement, systems  # noqa: E402
from peers.catalog import PEERS  # noqa: E402
from script_loading import load_script  # noqa: E402


def write_safetensors(path, tensors, metadata=None):
    """`tensors`: by name, dtype, shape and bytes."""
    header, data = {} if metadata is None else {"__metadata__": metadata}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def record(**shards):
    return {placement.RECORD: json.dumps({"version": 1, "rank": 0, "world": 2, "shards": shards})}


class Files(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)

    def file(self, name, tensors, metadata=None):
        write_safetensors(self.root / name, tensors, metadata)
        return self.root / name


class Differences(Files):
    """The proof that all ranks hold the same bytes must notice each way in which they may not."""

    def digests(self, **tensors):
        return placement.digests_of(self.file("saved.safetensors", tensors))

    def setUp(self):
        super().setUp()
        self.wanted = self.digests(a=("F16", [2], b"abcd"), b=("U8", [3], b"xyz"))

    def test_none(self):
        again = self.digests(b=("U8", [3], b"xyz"), a=("F16", [2], b"abcd"))  # in another order
        self.assertIsNone(placement.difference(self.wanted, again))

    def test_one_bit(self):
        found = self.digests(a=("F16", [2], b"abcd"), b=("U8", [3], b"xy{"))
        self.assertEqual(placement.difference(self.wanted, found), ("b", "differs in its bytes"))

    def test_shape_and_dtype(self):
        shape = self.digests(a=("F16", [2, 1], b"abcd"), b=("U8", [3], b"xyz"))
        self.assertEqual(placement.difference(self.wanted, shape), ("a", "differs in shape: [2, 1], not [2]"))
        dtype = self.digests(a=("BF16", [2], b"abcd"), b=("U8", [3], b"xyz"))
        self.assertEqual(placement.difference(self.wanted, dtype), ("a", "differs in dtype: BF16, not F16"))

    def test_too_few_and_too_many(self):
        few = self.digests(a=("F16", [2], b"abcd"))
        self.assertEqual(placement.difference(self.wanted, few), ("b", "is missing"))
        self.assertEqual(placement.difference(few, self.wanted), ("b", "is not this rank's"))

    def test_a_file_that_ends_early(self):
        path = self.file("short.safetensors", {"a": ("U8", [4], b"1234")})
        path.write_bytes(path.read_bytes()[:-1])
        with self.assertRaises(OSError):
            placement.digests_of(path)


class Placement(Files):
    def placed(self, saved, stored, **shards):
        model = self.file("model.safetensors", stored)
        part = self.file("rank.safetensors", saved, record(**shards))
        return placement.placement_of(part, placement.stored_tensors([model]))

    def test_slices_along_an_axis_and_whole_tensors(self):
        placed = self.placed(
            {"w": ("F16", [2, 1], b"abcd"), "n": ("U8", [1], b"x")},
            {"n": ("U8", [1], b"x"), "w": ("BF16", [2, 2], bytes(8))},
            w={"shape": [2, 2], "axis": 1, "intervals": [[1, 1]]},
        )
        self.assertEqual(list(placed), ["n", "w"])  # in the order of what is stored
        self.assertEqual((placed["n"]["axis"], placed["n"]["pieces"]), (None, []))
        self.assertEqual((placed["w"]["axis"], placed["w"]["pieces"]), (1, [(1, 1, 0)]))
        self.assertEqual((placed["w"]["stored_dtype"], placed["w"]["dtype"]), ("BF16", "F16"))

    def test_several_intervals_are_joined(self):
        self.assertEqual(placement.pieces_of([[0, 2], [6, 3]], 9), [(0, 2, 0), (6, 3, 2)])

    def test_what_is_not_stored_is_zeros(self):
        self.assertEqual(placement.pieces_of([[4, 4]], 6), [(4, 2, 0)])
        self.assertEqual(placement.pieces_of([[8, 4]], 6), [])

    def test_what_is_no_slice_is_refused(self):
        with self.assertRaisesRegex(placement.NotSlices, "no stored tensor has the name of 'fused'"):
            self.placed({"fused": ("U8", [1], b"x")}, {"n": ("U8", [1], b"x")})
        with self.assertRaisesRegex(placement.NotSlices, r"'n' \[2\] is not a slice of the stored tensor \[1\]"):
            self.placed({"n": ("U8", [2], b"xy")}, {"n": ("U8", [1], b"x")})


class Peers(unittest.TestCase):
    def test_names_are_unique_and_drivers_there(self):
        names = [peer.name for peer in PEERS]
        self.assertEqual(len(set(names)), len(names))
        for peer in PEERS:
            self.assertTrue((SCRIPTS / "peers" / f"{peer.driver}.py").is_file(), peer.driver)
            self.assertTrue(set(peer.packages) <= set(environment.STABLE), peer.packages)

    def test_what_is_not_installed_is_told(self):
        with tempfile.TemporaryDirectory() as directory:
            nothing = environment.Environment(Path(directory, "none"))
            nothing.failures["torch"] = "no space left"
            for peer in PEERS:
                obstacle = systems.Peer(peer, nothing).obstacle("cuda")
                self.assertRegex(obstacle, " is not installed: (the environment does not have it|no space left)$")
            nothing.versions = {"safetensors": "1"}
            first = systems.Peer(PEERS[0], nothing)
            self.assertEqual(first.obstacle("cpu"), "torch is not installed: no space left")
            nothing.versions["torch"] = "2"
            self.assertEqual(first.obstacle("cpu"), "")

    def test_what_needs_a_gpu_is_told(self):
        with tempfile.TemporaryDirectory() as directory:
            nothing = environment.Environment(Path(directory, "none"))
            for peer in PEERS:
                if peer.needs_gpu:
                    self.assertEqual(systems.Peer(peer, nothing).obstacle("cpu"), "needs a GPU for each rank")

    def test_the_line_that_tells_why(self):
        said = 'Traceback (most recent call last):\n  File "x"\nImportError: no module\na rank failed\n'
        self.assertEqual(systems.failure(said), "ImportError: no module")
        self.assertEqual(systems.failure("killed\n"), "killed")


def case_of(ranks=2, dtype="keep", size=1):
    model = models.Checkpoint("m", Path("m"), (), size)
    return systems.Case(model, ranks, dtype, "warm", Path("safeshuffle"), Path("."))


class Fio(Files):
    def files(self, *sizes):
        paths = [self.root / str(number) for number in range(len(sizes))]
        for path, size in zip(paths, sizes):
            path.write_bytes(bytes(size))
        return paths

    def test_many_files_are_dealt_evenly(self):
        sections = systems.fio_sections(self.files(5, 3, 3, 2, 2, 1), 2)
        self.assertEqual([section["filename"].split(":") for section in sections],
                         [[str(self.root / name) for name in names] for names in ("035", "124")])

    def test_few_files_are_cut(self):
        sections = systems.fio_sections(self.files(9), 4)
        self.assertEqual([(section["offset"], section["size"]) for section in sections],
                         [("0%", "25%"), ("25%", "25%"), ("50%", "25%"), ("75%", "25%")])


def measured(name, of, rate):
    return {"name": name, "of": of, "bytes_per_second": {"median": rate}}


class CachedRead(unittest.TestCase):
    def test_rates_are_of_all_ranks(self):
        probed = {"place": {"nodes": 2}, "measurements": [
            measured("read_warm_fresh", "one rank", 1e9), measured("read_warm_fresh", "node", 3e9),
            measured("memory_copy_fresh", "each rank", 2e9)]}
        prepared, ceiling = mock.Mock(), systems.CachedRead(lambda ranks: ["mpirun", str(ranks)])
        with mock.patch.object(systems.safeshuffle, "run", return_value=json.dumps(probed)) as run:
            self.assertEqual(ceiling.run(case_of(4, size=24 * 10**9), prepared)["seconds"], 4.0)  # of 2 nodes
        self.assertEqual(run.call_args.args[0][:2], ["mpirun", "4"])
        prepared.assert_called_once_with()
        alone = {"place": {"nodes": 1}, "measurements": [measured("read_warm_fresh", "one rank", 1e9)]}
        self.assertEqual(systems.rate_of_all(alone), 1e9)

    def test_what_the_probe_could_not_measure_is_told(self):
        probed = {"place": {"nodes": 1}, "measurements": [
            {"name": "read_warm_fresh", "of": "node", "obstacle": "the files have holes"}]}
        with self.assertRaisesRegex(systems.NotRun, "^not measured: the files have holes$"):
            systems.rate_of_all(probed)
        with self.assertRaisesRegex(systems.NotRun, "^not measured: safeshuffle probe does not read so here$"):
            systems.rate_of_all(probed | {"measurements": []})


class PageCache(Files):
    def setUp(self):
        super().setUp()
        self.path = self.root / "file"
        self.path.write_bytes(bytes(5 * mmap.PAGESIZE))

    def share_for(self, user, may_write):
        with mock.patch.multiple(page_cache.os, geteuid=lambda: user, access=lambda *_, **__: may_write):
            return page_cache.resident_share([self.path])

    def test_owners_and_who_may_write_are_told(self):
        owner = self.path.stat().st_uid
        self.assertEqual([self.share_for(owner, False), self.share_for(owner + 1, True)], [1, 1])
        self.assertEqual(self.share_for(0, False), 1)

    def test_others_are_told_nothing_so_nothing_is_proved(self):
        with self.assertRaisesRegex(page_cache.Unprepared, f"^{self.path}: .* neither cold nor warm can be checked"):
            self.share_for(self.path.stat().st_uid + 1, False)

    def test_what_was_made_warm_stays_so_until_the_next_run(self):
        preparer = page_cache.Preparer()
        preparer.prepare([self.path], "warm")
        page_cache.put_out([self.path])
        self.assertEqual(page_cache.resident_share([self.path]), 1)
        kind = subprocess.run(["stat", "-f", "-c", "%T", self.path], capture_output=True, text=True, check=True).stdout
        if kind == "tmpfs\n":
            self.skipTest("in memory, nothing is cold")
        preparer.prepare([self.path], "cold")
        self.assertEqual(page_cache.resident_share([self.path]), 0)


class Stub:
    """A system that loads what it is told."""

    def __init__(self, name, found):
        self.name, self.loads, self.found = name, True, found

    def digests(self, case):
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


class Proof(unittest.TestCase):
    """Of a whole comparison, the step that compares bytes."""

    WANTED = [{"w": ["U8", [1], "aa"]}, {"w": ["U8", [1], "bb"]}]

    def setUp(self):
        self.script = load_script(SCRIPTS, "compare")
        self.comparison = object.__new__(self.script.Comparison)
        self.comparison.systems, self.comparison.proofs = [None], []
        self.comparison.measured = measurement.Measurement(None, None)

    def is_equal(self, found):
        return self.comparison.is_equal(Stub("lib", found), case_of(dtype="f16"), self.WANTED, "")

    def test_equal(self):
        self.assertTrue(self.is_equal(self.WANTED))
        self.assertEqual(self.comparison.proofs, [{"system": "lib", "ranks": 2, "dtype": "f16", "tensors": 2}])

    def test_a_difference_ends_the_run_and_names_where(self):
        with self.assertRaises(SystemExit) as ended:
            self.is_equal([self.WANTED[0], {"w": ["U8", [1], "bc"]}])
        self.assertEqual(str(ended.exception),
                         "compare: lib, 2 ranks, --dtype f16: rank 1: tensor 'w' differs in its bytes")

    def test_a_rank_too_few_ends_the_run(self):
        with self.assertRaises(SystemExit):
            self.is_equal(self.WANTED[:1])

    def test_what_cannot_run_is_listed(self):
        self.assertFalse(self.is_equal(systems.NotRun("failed: no memory")))
        self.assertEqual(self.comparison.measured.not_run,
                         [{"what": "lib, 2 ranks, --dtype f16", "reason": "failed: no memory"}])


if __name__ == "__main__":
    unittest.main()
