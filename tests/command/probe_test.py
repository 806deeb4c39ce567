"""What `probe` measures, prints and keeps, and what `load` makes of it. No test depends on speeds.

Environment: that of launch.py.
"""

import contextlib
import itertools
import json
import os
import random
import shutil
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

from files import kept_in_page_cache
from launch import run

USAGE_ERROR, IO_ERROR, FORMAT_ERROR = 2, 3, 4
TENSOR_BYTES = 6 << 20


def write_model(directory):
    """Two files without holes, all of them on storage."""
    directory.mkdir()
    for number in range(2):
        header = json.dumps({f"t{number}": {"dtype": "U8", "shape": [TENSOR_BYTES],
                                            "data_offsets": [0, TENSOR_BYTES]}}).encode()  # fmt: skip
        with open(directory / f"model-0000{number + 1}-of-00002.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            file.write(random.Random(number).randbytes(TENSOR_BYTES))
            file.flush()
            os.fsync(file.fileno())


def has_storage(directory):
    """Whether pages can be dropped and read again; not so in tmpfs."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", directory], capture_output=True, text=True, check=True)
    return kind.stdout.strip() not in ("tmpfs", "ramfs")


class Probe(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(directory := tempfile.TemporaryDirectory(prefix="safeshuffle-"))
        cls.root = Path(directory.name)
        cls.model = cls.root / "model"
        write_model(cls.model)
        cls.probed = {}  # by number of ranks: cache directory, result

    def setUp(self):
        self.cache = Path(tempfile.mkdtemp(dir=self.root))
        self.enterContext(self.environment("XDG_CACHE_HOME", self.cache))

    def probe_once(self, ranks):
        """A probe of the model that several tests share, in their cache; each takes seconds."""
        if ranks not in self.probed:
            cache = self.root / f"cache of {ranks}"
            with self.environment("XDG_CACHE_HOME", cache):
                self.probed[ranks] = cache, self.probe(*(["--json"] if ranks == 1 else []), ranks=ranks)
        cache, result = self.probed[ranks]
        shutil.copytree(cache, self.cache, dirs_exist_ok=True)
        return result

    @contextlib.contextmanager
    def environment(self, name, value):
        before = os.environ.get(name)
        os.environ[name] = str(value)
        try:
            yield
        finally:
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before

    def probe(self, *options, model=None, ranks=1):
        result = run("probe", model or self.model, "--quick", "--device", "host", *options, ranks=ranks)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def kept(self):
        return sorted((self.cache / "safeshuffle" / "probe").glob("*"))

    def measurements(self, probe):
        return {(each["name"], each["of"]): each for each in probe["measurements"]}

    def check(self, probe, ranks):
        self.assertEqual(probe["schema_version"], 2)
        self.assertEqual(probe["place"]["ranks_per_node"], ranks)
        self.assertEqual(probe["place"]["nodes"], 1)
        self.assertEqual(probe["place"]["device"], "host")
        self.assertGreater(probe["reading"]["sample_bytes"], 0)
        self.assertLessEqual(probe["reading"]["sample_bytes"], 3 * TENSOR_BYTES)
        found = self.measurements(probe)
        reads = {"read_cold_direct", "read_cold_buffered", "read_warm", "read_warm_fresh"}
        expected = {(name, "one rank") for name in reads}
        expected |= {(name, "each rank") for name in ("pack", "pack_convert", "wave")}
        if ranks > 1:
            expected |= {(name, "node") for name in reads} | {("exchange", "each rank")}
        self.assertEqual(set(found), expected)
        for key, each in found.items():
            with self.subTest(key):
                self.check_measurement(each)

    def check_measurement(self, each):
        spread = each.get("bytes_per_second") or each.get("seconds")
        self.assertEqual(spread is None, "obstacle" in each, each)
        if spread is None:
            return
        self.assertLessEqual(spread["least"], spread["median"])
        self.assertLessEqual(spread["median"], spread["most"])
        self.assertGreaterEqual(spread["runs"], 1)

    def test_one_rank(self):
        printed = json.loads(self.probe_once(ranks=1).stdout)
        self.check(printed, 1)
        (kept,) = self.kept()
        self.assertEqual(json.loads(kept.read_text()), printed)

    def test_two_ranks(self):
        result = self.probe_once(ranks=2)
        (kept,) = self.kept()
        self.check(json.loads(kept.read_text()), 2)
        self.assertEqual(result.stderr, "")
        self.assertRegex(result.stdout, "(?m)^device host, transport mpi, 2 ranks on 1 node$")
        self.assertRegex(result.stdout, r"(?m)^pack rows +each rank +\d+\.\d\d ")
        self.assertRegex(result.stdout, r"(?m)^exchange, sent +each rank +\d+\.\d\d ")
        self.assertRegex(result.stdout, r"(?m)^a wave takes \d+\.\d microseconds besides ")
        self.assertRegex(result.stdout, r"\nkept in .+/safeshuffle/probe/.+\.json\n$")

    def test_the_last_probe_of_a_place_is_kept_and_nothing_beside_the_files(self):
        names = sorted(path.name for path in self.model.iterdir())
        self.probe_once(ranks=2)
        before = json.loads(self.probe_once(ranks=1).stdout)
        self.assertEqual(len(self.kept()), 2)
        printed = json.loads(self.probe("--json").stdout)
        kept = [json.loads(path.read_text()) for path in self.kept()]
        self.assertEqual(len(kept), 2)
        self.assertIn(printed, kept)
        self.assertNotIn(before, kept)
        self.assertEqual(sorted(path.name for path in self.model.iterdir()), names)

    def test_cold_is_cold_where_there_is_storage(self):
        if not has_storage(self.model):
            self.skipTest("files are in memory here")
        found = self.measurements(json.loads(self.probe_once(ranks=1).stdout))
        for name in "read_cold_buffered", "read_warm":
            self.assertIn("bytes_per_second", found[name, "one rank"])

    def test_files_in_memory_are_not_cold(self):
        if not os.access("/dev/shm", os.W_OK):
            self.skipTest("/dev/shm is not writable")
        with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
            model = Path(directory) / "model"
            write_model(model)
            text = self.probe(model=model, ranks=2).stdout
        (kept,) = self.kept()
        probe = json.loads(kept.read_text())
        found = self.measurements(probe)
        self.assertEqual(probe["place"]["filesystem"], "tmpfs")
        for name in "read_cold_direct", "read_cold_buffered":
            for of in "one rank", "node":
                self.assertIn("tmpfs keeps its files in memory", found[name, of]["obstacle"])
                self.assertNotIn("bytes_per_second", found[name, of])
            self.assertNotIn(name + "_node", probe["costs"])
        self.assertIn("bytes_per_second", found["read_warm", "node"])
        self.assertRegex(text, "(?m)^read cold files, direct: not measured: .* tmpfs keeps its files in memory$")

    def test_files_with_holes_are_not_measured(self):
        sparse = self.root / "sparse"
        made = run("make", sparse, "--like", "llama-2-70b", "--scale", "0.0001", "--sparse")
        self.assertEqual(made.returncode, 0, made.stderr)
        found = self.measurements(json.loads(self.probe("--json", model=sparse).stdout))
        for name in "read_cold_direct", "read_cold_buffered", "read_warm":
            self.assertIn("holes", found[name, "one rank"]["obstacle"])

    def test_what_cannot_be_read(self):
        for ranks in (1, 2):
            result = run("probe", "/nonexistent", "--quick", ranks=ranks)
            self.assert_one_message(result, IO_ERROR, "rank 0: /nonexistent: ")
        broken = self.root / "broken.safetensors"
        broken.write_bytes(b"\x05\0\0\0\0\0\0\0hello")
        self.assert_one_message(run("probe", broken, "--quick"), FORMAT_ERROR, f"rank 0: {broken}: ")
        self.assertEqual(self.kept(), [])

    def test_usage(self):
        self.assert_one_message(run("probe"), USAGE_ERROR, "MODEL is required; see")
        for option in ("--timeout", "1"), ("--progress", "json"):
            self.assert_one_message(run("probe", self.model, *option), USAGE_ERROR, option[0])
        result = run("probe", self.model, "--device", "host", "--gpu", 1)
        self.assert_one_message(result, USAGE_ERROR, "--gpu cannot be used with --device host")

    def assert_one_message(self, result, status, message):
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("safeshuffle: error: "), 1, result.stderr)
        self.assertIn("safeshuffle: error: " + message, result.stderr)

    def test_what_cannot_be_kept_is_printed(self):
        obstacle = self.root / "file"
        obstacle.write_text("x")
        with self.environment("XDG_CACHE_HOME", obstacle):
            result = self.probe("--json", ranks=2)
        self.check(json.loads(result.stdout), 2)
        self.assertEqual(result.stderr.count("safeshuffle: warning: the result is not kept: "), 1)
        self.assertIn(f"{obstacle}/safeshuffle/probe", result.stderr)

    def test_a_result_that_cannot_be_printed_is_kept(self):
        result = run("probe", self.model, "--quick", "--device", "host", redirection=">/dev/full")
        self.assertEqual(result.returncode, IO_ERROR)
        self.assertEqual(len(self.kept()), 1)

    def load(self, *options, ranks):
        report = self.root / "report.json"
        result = run("load", self.model, "--device", "host", "--tp-plan", "replicate", "--report", report,
                     *options, ranks=ranks)  # fmt: skip
        self.assertEqual(result.returncode, 0, result.stderr)
        return result, json.loads(report.read_text())

    def test_a_load_without_a_probe_says_what_took_the_time(self):
        result, report = self.load(ranks=1)
        self.assertRegex(result.stdout, r"(?m)^bound by [a-z ]+: \d+\.\d{3} of \d+\.\d{3} s$")
        self.assertNotIn("ceilings", report)
        self.assertIn(report["bottleneck"]["phase"], report["ranks"][0]["phases"])

    def test_a_load_with_a_probe_says_what_share_it_reached(self):
        for ranks in (1, 2):
            self.probe_once(ranks)
            # By default, the costs and the cache of this machine may choose a way without packing or exchange.
            _, report = self.load("--direct", "on", "--assign", "round-robin", ranks=ranks)
            ceilings = report["ceilings"]
            self.assertIn(Path(ceilings["probe"]), self.kept())
            kept = json.loads(Path(ceilings["probe"]).read_text())
            self.assertEqual(kept["place"]["ranks_per_node"], ranks)
            self.assertEqual(kept["date"], ceilings["date"])
            steps = {step["step"]: step for step in ceilings["steps"]}
            self.assertIn("pack", steps)
            self.assertEqual("exchange" in steps, ranks > 1)
            for step in steps.values():
                self.assertAlmostEqual(step["share"], step["gigabytes_per_second"]
                                       / step["ceiling_gigabytes_per_second"])  # fmt: skip

    def test_a_probe_of_another_number_of_ranks_is_not_used(self):
        self.probe_once(ranks=1)
        _, report = self.load(ranks=2)
        self.assertNotIn("ceilings", report)

    def test_a_probe_of_other_cpus_is_not_used(self):
        """As on a machine that has been replaced by another of the same name."""
        self.probe_once(ranks=1)
        (kept,) = self.kept()
        own = json.loads(kept.read_text())
        self.assertEqual(own["machine"]["cpus"], os.cpu_count())
        for change in {}, {"cpu": "another"}, {"cpus": own["machine"]["cpus"] + 1}:
            kept.write_text(json.dumps(own | {"machine": own["machine"] | change}))
            _, report = self.load(ranks=1)
            self.assertEqual("ceilings" in report, not change)

    def test_plans_are_by_the_probe_by_which_loads_plan(self):
        self.probe_once(ranks=2)
        (kept,) = self.kept()
        probe = json.loads(kept.read_text())
        reasons = {}
        for ranks, rate in itertools.product((2, 3), (1e6, 1e12)):
            probe["costs"]["read_warm_node"] = probe["costs"]["read_warm_rank"] = rate
            kept.write_text(json.dumps(probe))
            with kept_in_page_cache(self.model):
                plan = run("plan", self.model, "--world", ranks, "--tp-plan", "replicate", "--json")
                self.assertEqual(plan.returncode, 0, plan.stderr)
                _, report = self.load(ranks=ranks)
            self.assertEqual(json.loads(plan.stdout)["assignment_reason"], report["assignment_reason"])
            reasons[ranks, rate] = report["assignment_reason"]
        for rate in 1e6, 1e12:
            self.assertIn(f"; costs: {kept}; ", reasons[2, rate])
            self.assertIn("; costs: defaults; ", reasons[3, rate])
        self.assertNotEqual(reasons[2, 1e6], reasons[2, 1e12])
        self.assertEqual(reasons[3, 1e6], reasons[3, 1e12])

    def test_a_kept_probe_that_is_not_valid_is_not_used(self):
        self.probe_once(ranks=1)
        (kept,) = self.kept()
        kept.write_text('{"schema_version": 1')
        result, report = self.load(ranks=1)
        self.assertNotIn("ceilings", report)
        self.assertIn(f"safeshuffle: warning: the kept probe is not used: {kept}: line 1", result.stderr)
        plan = run("plan", self.model, "--world", 1)
        self.assertEqual(plan.returncode, 0, plan.stderr)
        self.assertIn(f"safeshuffle: warning: the kept probe is not used: {kept}: line 1", plan.stderr)


if __name__ == "__main__":
    unittest.main()
