"""Tensors on a GPU handed to PyTorch and CuPy through DLPack, against the reference library. Exit status 77
(skipped) where neither is installed.

Environment: EXAMPLE_DLPACK, the example's library; PYTHONPATH, the directories of its module and of the
oracle's; FRAMEWORKS and DEVICE, if not those above.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
import zlib
from pathlib import Path

import numpy as np

import checkpoint
import safeshuffle_dlpack

EXAMPLE = Path(safeshuffle_dlpack.__file__).parent
FRAMEWORKS = os.environ.get("FRAMEWORKS", "torch cupy").split()
DEVICE = os.environ.get("DEVICE", "cuda")

# The types that a framework takes through DLPack.
DTYPES = {
    "numpy": ("U8", "I8", "I16", "I32", "I64", "F16", "F32", "F64"),
    "cupy": ("U8", "I8", "I16", "I32", "I64", "F16", "F32", "F64"),
    "torch": ("U8", "I8", "I16", "I32", "I64", "F16", "BF16", "F32", "F64"),
}
SHAPES = [(), (1,), (4, 6), (1000, 77), (2, 3, 2, 2)]


class Dlpack(unittest.TestCase):
    def test_what_frameworks_see_is_what_was_stored(self):
        for framework in FRAMEWORKS:
            with self.subTest(framework), tempfile.TemporaryDirectory() as directory:
                if importlib.util.find_spec(framework) is None:
                    self.skipTest(f"{framework} is not installed")
                path = Path(directory) / "model.safetensors"
                self.assertEqual(*self.shown_and_stored(framework, path))

    def shown_and_stored(self, framework, path):
        """Shape and CRC-32 by name, as the framework has them and as the reference library has them."""
        rng = np.random.default_rng(5)
        checkpoint.write_by_reference(path, {
            f"{dtype}.{i}": checkpoint.random_tensor(rng, dtype, shape)
            for dtype in DTYPES[framework] for i, shape in enumerate(SHAPES)
        })  # fmt: skip
        result = subprocess.run(
            [sys.executable, EXAMPLE / "show_tensors.py", os.environ["EXAMPLE_DLPACK"], path,
             "--device", DEVICE, "--framework", framework],
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = [line.split("\t") for line in result.stdout.splitlines()]
        stored = {
            name: [f"[{','.join(map(str, tensor.shape))}]", f"{zlib.crc32(tensor.data):08x}"]
            for name, tensor in checkpoint.read(path).items()
        }
        return {row[0]: row[2:] for row in rows}, stored


if __name__ == "__main__":
    if not any(importlib.util.find_spec(framework) for framework in FRAMEWORKS):
        print(f"none of these is installed: {', '.join(FRAMEWORKS)}")
        sys.exit(77)
    unittest.main()
