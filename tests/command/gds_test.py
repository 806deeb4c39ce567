"""Loads with GPUDirect Storage: cuFile has a stand-in, and the GPUs are simulated.

Environment: that of launch.py; CUFILE, the directory of the stand-in; NO_CUFILE, a directory of a
file of its name that is not a library.
"""

import json
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from files import reads_directly
from launch import run

IO_ERROR = 3
FALLBACK_ERROR = 10
EIO = 5
IO_NOT_SUPPORTED = 5008


class Gds(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(directory := tempfile.TemporaryDirectory(prefix="safeshuffle-"))
        cls.root = Path(directory.name)
        cls.model = cls.root / "model"
        run("make", cls.model, "--like", "llama-2-70b", "--scale", "0.0001")
        if not reads_directly(cls.model):
            raise unittest.SkipTest("the filesystem refuses O_DIRECT")

    def load(self, *options, settings="", ranks=1, cufile="CUFILE", device="cuda",
             direct="on"):  # fmt: skip
        """With what the stand-in is told, see tests/support/cufile/stand_in.cpp."""
        paths = [os.environ[cufile], *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        variables = {"LD_LIBRARY_PATH": ":".join(paths), "CUFILE_STAND_IN": settings}
        with mock.patch.dict(os.environ, variables):
            return run("load", self.model, "--device", device, "--io", "gds", "--direct", direct,
                       "--only", "model.layers.[0-7].*", *options, ranks=ranks)  # fmt: skip

    def load_and_verify(self, *options, **how):
        """Returns what was printed, and of the report what is about reading, by rank."""
        path = self.root / "report.json"
        result = self.load("--verify", "full", "--report", path, *options, **how)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("verified: every byte on every rank equals the files", result.stdout)
        ranks = json.loads(path.read_text(encoding="utf-8"))["ranks"]
        return result.stdout, [rank["io"] for rank in ranks]

    def assert_falls_back(self, fallback, straight=False, **how):
        """All files are read, some by cuFile or none; with --strict, that is an error."""
        printed, (io,) = self.load_and_verify(**how)
        self.assertIn(f"\nfallback: {fallback}", printed)
        self.assertRegex(io["fallbacks"][0], f"^{fallback}")
        self.assertEqual(io["gds_bytes"] > 0, straight)
        self.assertEqual(io["path"], "gds+posix direct" if straight else "posix direct")
        result = self.load("--strict", **how)
        self.assertEqual(result.returncode, FALLBACK_ERROR, result.stderr)
        self.assertIn(f"strict: {fallback}", result.stderr)

    def test_whole_pages_are_read_by_cufile(self):
        for ranks in (1, 2):
            for options in ([], ["--window", "64KiB", "--chunk", "16KiB"], ["--dtype", "f16"]):
                with self.subTest(ranks=ranks, options=options):
                    printed, ios = self.load_and_verify("--strict", "--tp-plan", "replicate",
                                                        *options, ranks=ranks)  # fmt: skip
                    self.assertIn(", I/O gds+posix direct; ", printed)
                    for io in ios:
                        self.assertEqual(io["path"], "gds+posix direct")
                        self.assertEqual(io["fallbacks"], [])
                        self.assertEqual(io["buffered_bytes"], 0)
                        self.assertGreater(io["gds_bytes"], io["direct_bytes"] // 2)
                        self.assertLess(io["gds_bytes"], io["direct_bytes"])

    def test_slabs_are_registered(self):
        log = self.root / "log"
        self.load_and_verify("--window", "64KiB", settings=f"log={log}")
        calls = log.read_text(encoding="utf-8").splitlines()
        self.assertEqual(calls.count("cuFileDriverOpen"), 1)
        self.assertEqual(calls.count("cuFileBufRegister"), 3)
        self.assertEqual(calls.count("cuFileBufDeregister"), 3)
        reads = [call for call in calls if call.startswith("cuFileRead")]
        self.assertGreater(len(reads), 0)
        self.assertTrue(all(call.endswith(" registered") for call in reads), reads)

    def test_automatic_mode_reads_the_page_cache_without_cufile(self):
        _, (io,) = self.load_and_verify(direct="auto")  # they were just written
        self.assertEqual(io["gds_bytes"] > 0, io["direct_bytes"] > 0)
        self.assertEqual(io["fallbacks"], [])

    def test_there_is_no_library(self):
        self.assert_falls_back("gds fell back to posix: cannot load cuFile: ", cufile="NO_CUFILE")

    def test_the_driver_does_not_open(self):
        self.assert_falls_back(
            "gds fell back to posix: cuFileDriverOpen: cuFile error 5001",
            settings="open=5001",
        )

    def test_the_filesystem_is_rejected(self):
        first = min(self.model.glob("*.safetensors"))
        self.assert_falls_back(
            f"{first}: gds fell back to posix: cuFileHandleRegister: cuFile error {IO_NOT_SUPPORTED}",
            settings=f"file={IO_NOT_SUPPORTED}",
        )

    def test_compatibility_mode(self):
        self.assert_falls_back(
            "gds reads through host memory: cuFile is in compatibility mode, without nvidia-fs",
            straight=True,
            settings="nvfs=0",
        )

    def test_the_host(self):
        self.assert_falls_back("gds fell back to posix: the device is not a GPU", device="host")

    def test_cufile_cannot_read(self):
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                result = self.load("--tp-plan", "replicate", settings=f"read={EIO} from=8192",
                                   ranks=ranks)  # fmt: skip
                self.assertEqual(result.returncode, IO_ERROR, result.stderr)
                self.assertRegex(
                    result.stderr,
                    r"safeshuffle: error: rank \d: \S+\.safetensors: byte \d+: "
                    "cuFileRead: Input/output error",
                )


if __name__ == "__main__":
    unittest.main()
