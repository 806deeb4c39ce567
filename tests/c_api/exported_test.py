"""The library shows what its header declares, and nothing else.

Environment: LIBRARY; HEADER.
"""

import os
import re
import subprocess
import unittest
from pathlib import Path


class Exported(unittest.TestCase):
    def test_the_header_is_the_list(self):
        header = re.sub(r"/\*.*?\*/", "", Path(os.environ["HEADER"]).read_text(encoding="utf-8"), flags=re.S)
        declared = set(re.findall(r"SAFESHUFFLE_EXPORT\b[^(;]*?\b(safeshuffle_\w+)\(", header))
        output = subprocess.run(
            ["nm", "-D", "--defined-only", os.environ["LIBRARY"]], capture_output=True, text=True, check=True
        ).stdout
        self.assertGreater(len(declared), 30)
        self.assertEqual({line.split()[-1] for line in output.splitlines()}, declared)


if __name__ == "__main__":
    unittest.main()
