"""scripts/compare where there are GPUs, which are simulated.

Environment: SAFESHUFFLE, the command; SCRIPTS, the directory of scripts; NVML, a directory with a library in its
place, for which more memory is in use each time it is asked; NO_NVML, one in which its name is that of no library.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from launch import run

NVIDIA_SMI = "#!/bin/sh\necho 'GPU 0: Simulated'\necho 'GPU 1: Simulated'\n"
GPUS = 2


class CompareOnGpus(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="safeshuffle-")
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)
        made = run("make", self.root / "model", "--like", "llama-2-70b", "--scale", "0.0001", "--sparse")
        self.assertEqual(made.returncode, 0, made.stderr)
        tool = self.root / "bin" / "nvidia-smi"
        tool.parent.mkdir()
        tool.write_text(NVIDIA_SMI, encoding="utf-8")
        tool.chmod(0o755)

    def samples(self, nvml, *ranks):
        out = self.root / "out"
        options = ["--cache", "warm", "--dtype", "keep", "--turns", "2", "--only", "fio", "--ranks", *map(str, ranks)]
        done = subprocess.run(
            [sys.executable, Path(os.environ["SCRIPTS"], "compare"), "--command", os.environ["SAFESHUFFLE"],
             "--model", self.root / "model", "--out", out, "--no-plots", *options],
            env=os.environ | {"PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
                              "LD_LIBRARY_PATH": f"{nvml}:{os.environ.get('LD_LIBRARY_PATH', '')}"},
            capture_output=True, text=True, timeout=100, check=False)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads((out / "results.json").read_text(encoding="utf-8"))
        self.assertEqual(len(result["machine"]["gpus"]), GPUS)
        self.assertEqual(len(result["samples"]), 2 * len(ranks), result["not_run"])
        return result["samples"]

    def test_memory_of_all_gpus_is_watched_during_each_load(self):
        for sample in self.samples(os.environ["NVML"], 1, 2):
            self.assertGreater(sample["peak_gpu_bytes"], 0)
            self.assertLess(sample["peak_gpu_bytes"], 1 << 40)  # what was in use before does not count
            self.assertEqual(sample["peak_gpu_bytes"] % (GPUS << 20), 0)  # of each as much

    def test_without_nvml_it_is_not_known(self):
        for sample in self.samples(os.environ["NO_NVML"], 1):
            self.assertIsNone(sample["peak_gpu_bytes"])


if __name__ == "__main__":
    unittest.main()
