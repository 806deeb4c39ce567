"""scripts/lib/junit-summary counts what ctest writes.

usage: junit_summary_test.py JUNIT_SUMMARY
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SUMMARY = sys.argv.pop()

PASSED = '<testcase name="a" status="run"/>'
FAILED = '<testcase name="b" status="fail"><failure message=""/></testcase>'
SKIPPED = (
    '<testcase name="c" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>'
    "<system-out>first\nno GPU here\n</system-out></testcase>"
)
NOT_STARTED = (
    '<testcase name="d" status="notrun"><skipped message="Unable to find executable"/></testcase>'
)


def summarise(*suites):
    with tempfile.TemporaryDirectory() as directory:
        paths = []
        for index, cases in enumerate(suites):
            paths.append(Path(directory, f"{index}.xml"))
            paths[-1].write_text(f"<testsuite>{''.join(cases)}</testsuite>", encoding="utf-8")
        return subprocess.run(
            [sys.executable, SUMMARY, *paths], capture_output=True, text=True, check=False
        )


class JunitSummary(unittest.TestCase):
    def test_all_passed(self):
        result = summarise([PASSED, PASSED], [PASSED])
        self.assertEqual(result.stdout, "3 passed, 0 failed, 0 skipped\n")
        self.assertEqual(result.returncode, 0)

    def test_failure(self):
        result = summarise([PASSED, FAILED])
        self.assertTrue(result.stdout.endswith("\n1 passed, 1 failed, 0 skipped\n"))
        self.assertEqual(result.returncode, 1)

    def test_skipped_with_reason(self):
        result = summarise([PASSED, SKIPPED])
        self.assertEqual(
            result.stdout, "skipped: c: no GPU here\n1 passed, 0 failed, 1 skipped\n"
        )
        self.assertEqual(result.returncode, 0)

    def test_not_started_is_a_failure(self):
        result = summarise([PASSED, NOT_STARTED])
        self.assertIn("1 passed, 1 failed, 0 skipped", result.stdout)
        self.assertEqual(result.returncode, 1)

    def test_nothing_ran(self):
        for cases in ([], [SKIPPED]):
            self.assertEqual(summarise(cases).returncode, 1)


if __name__ == "__main__":
    unittest.main()
