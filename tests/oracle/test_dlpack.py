"""Tensors handed to NumPy through DLPack by the Python example, against the reference library.

Environment: EXAMPLE_DLPACK, the example's library; PYTHONPATH, the directory of its module.
"""

import gc
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
LIBRARY = os.environ["EXAMPLE_DLPACK"]

# What NumPy calls the types that it and every DLPack have.
NUMPY_NAMES = {
    "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "F32": "float32", "F64": "float64",
    "C64": "complex64",
}  # fmt: skip
SHAPES = [(), (1,), (4, 6), (3, 0, 2), (2, 3, 2, 2)]


def resident_bytes():
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGESIZE")


class Dlpack(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(directory := tempfile.TemporaryDirectory())
        cls.work = Path(directory.name)

    def write(self, name, tensors):
        path = self.work / name
        checkpoint.write_by_reference(path, tensors)
        return path

    def write_one(self, name, shape=(2, 3)):
        return self.write(name, {"w": checkpoint.random_tensor(np.random.default_rng(3), "F32", shape)})

    def show(self, path):
        result = subprocess.run(
            [sys.executable, EXAMPLE / "show_tensors.py", LIBRARY, path],
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        self.assertEqual(result.returncode, 0, result.stderr)
        return dict(line.split("\t", 1) for line in result.stdout.splitlines())

    def test_every_type_that_numpy_has(self):
        rng = np.random.default_rng(17)
        path = self.write("types.safetensors", {
            f"{dtype}.{i}": checkpoint.random_tensor(rng, dtype, shape)
            for dtype in NUMPY_NAMES for i, shape in enumerate(SHAPES)
        })  # fmt: skip
        expected = {
            name: f"{NUMPY_NAMES[t.dtype]}\t[{','.join(map(str, t.shape))}]\t{zlib.crc32(t.data):08x}"
            for name, t in checkpoint.read(path).items()
        }
        self.assertEqual(self.show(path), expected)

    def test_types_that_somebody_lacks(self):
        rng = np.random.default_rng(18)
        path = self.write("others.safetensors", {
            dtype: checkpoint.random_tensor(rng, dtype, (4, 6)) for dtype in ("BF16", "F8_E4M3", "F4")
        })  # fmt: skip
        shown = self.show(path)
        self.assertEqual(sorted(shown), ["BF16", "F4", "F8_E4M3"])
        for line in shown.values():
            self.assertRegex(line, "^not exported: .")

    def test_memory_is_shared_and_outlives_the_model(self):
        path = self.write_one("shared.safetensors")
        model = safeshuffle_dlpack.Model(LIBRARY, path)
        first, second = np.from_dlpack(model["w"]), np.from_dlpack(model["w"])
        self.assertEqual(first.ctypes.data, second.ctypes.data)
        del model, second
        gc.collect()
        self.assertEqual(first.tobytes(), checkpoint.read(path)["w"].data)

    def test_memory_is_freed_whether_a_capsule_is_consumed_or_not(self):
        mebibyte = 1 << 20
        path = self.write_one("large.safetensors", (16, mebibyte // 4))
        for use in (np.from_dlpack, lambda tensor: tensor.__dlpack__()):
            before = resident_bytes()
            for _ in range(12):
                use(safeshuffle_dlpack.Model(LIBRARY, path)["w"])
            self.assertLess(resident_bytes() - before, 64 * mebibyte)

    def test_memory_is_freed_when_a_framework_refuses(self):
        mebibyte = 1 << 20
        tensor = checkpoint.random_tensor(np.random.default_rng(4), "BF16", (16, mebibyte // 2))
        path = self.write("refused.safetensors", {"w": tensor})
        before = resident_bytes()
        for _ in range(12):
            with self.assertRaises((BufferError, RuntimeError)):
                np.from_dlpack(safeshuffle_dlpack.Model(LIBRARY, path)["w"])
        self.assertLess(resident_bytes() - before, 64 * mebibyte)

    def test_what_would_need_a_copy_is_refused(self):
        tensor = safeshuffle_dlpack.Model(LIBRARY, self.write_one("copy.safetensors"))["w"]
        self.assertEqual(tensor.__dlpack_device__(), (1, 0))
        for request in ({"copy": True}, {"dl_device": (2, 0)}):
            with self.assertRaises(BufferError):
                tensor.__dlpack__(**request)

    def test_errors_name_the_file(self):
        with self.assertRaisesRegex(RuntimeError, "nowhere.safetensors.*No such file"):
            safeshuffle_dlpack.Model(LIBRARY, self.work / "nowhere.safetensors")


if __name__ == "__main__":
    unittest.main()
