"""What nvcc makes of the pack kernel: within its registers, nothing in local memory, wide loads and stores.

Arguments: the source; architecture, such as 90; nvcc and its options. Without nvcc: exit status 77, skipped.
"""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE, ARCHITECTURE, *NVCC = sys.argv[1:]
MOST_REGISTERS = 64  # for 1024 threads per multiprocessor
SKIPPED = 77


class PackKernelCode(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as directory:
            result = subprocess.run(
                [*NVCC, "-cubin", f"-arch=sm_{ARCHITECTURE}", "-Xptxas", "-v", "--keep",
                 "--keep-dir", directory, "-o", f"{directory}/kernel.cubin", SOURCE],
                capture_output=True, text=True, timeout=100, check=False,
            )  # fmt: skip
            cls.assembler = result.stdout + result.stderr
            if result.returncode != 0:
                raise RuntimeError(cls.assembler)
            (ptx,) = Path(directory).glob("*.ptx")
            text = ptx.read_text(encoding="utf-8")
            cls.kernels = text.count(".entry ")
            cls.accesses = set(re.findall(r"\b(?:ld|st)\.[\w.]+", text))

    def numbers(self, pattern):
        """One for each kernel."""
        numbers = [int(number) for number in re.findall(pattern, self.assembler)]
        self.assertEqual(len(numbers), self.kernels, self.assembler)
        self.assertGreater(len(numbers), 0)
        return numbers

    def test_registers(self):
        self.assertLessEqual(max(self.numbers(r"Used (\d+) registers")), MOST_REGISTERS)

    def test_nothing_is_spilled_or_on_a_stack(self):
        for what in ("stack frame", "spill stores", "spill loads"):
            self.assertEqual(max(self.numbers(rf"(\d+) bytes {what}")), 0, self.assembler)

    def test_no_local_memory(self):
        self.assertEqual([access for access in self.accesses if ".local" in access], [])

    def test_16_bytes_at_a_time(self):
        self.assertIn("ld.global.nc.v4.u32", self.accesses)
        self.assertIn("st.global.cs.v4.u32", self.accesses)


if __name__ == "__main__":
    if not NVCC or not NVCC[0]:
        print("skipped: built without CUDA")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
