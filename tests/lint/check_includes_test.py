"""scripts/check-includes accepts a tree that keeps the rules and finds every way to break them.

usage: check_includes_test.py CHECK_INCLUDES
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK = sys.argv.pop()

CLEAN = {
    "include/safeshuffle/dtype.hpp": "#include <cstdint>\n",
    "include/safeshuffle/plan.hpp": '#include "safeshuffle/dtype.hpp"\n',
    "include/safeshuffle/mpi.hpp": "#include <mpi.h>\n",
    "src/core/clock.hpp": "#include <chrono>\n",
    "src/core/clock.cpp": '#include "core/clock.hpp"\n#include <unistd.h>\n',
    "src/core/text.hpp": "#include <string>\n",
    "src/core/text.cpp": '#include "core/text.hpp"\n#include <sstream>\n',
    "src/format/header.cpp": '#include "core/text.hpp"\n#include <nlohmann/json.hpp>\n',
    "src/format/index.cpp": "#include <filesystem>\nstd::filesystem::path directory;\n",
    "src/source/files.cpp": '#include "core/clock.hpp"\n#include <fcntl.h>\n',
    "src/format/json.hpp": "#include <nlohmann/json_fwd.hpp>\n",
    "src/io/reader.hpp": '#include "core/clock.hpp"\n',
    "src/io/posix.cpp": '#include "io/reader.hpp"\n#include <fcntl.h>\n',
    "src/device/device.hpp": "#include <vector>\n",
    "src/comm/mpi/group.hpp": "#include <mpi.h>\n",
    "src/comm/control/control.hpp": '#include "comm/mpi/group.hpp"\n#include "core/text.hpp"\n',
    "src/comm/exchange/transport.hpp": '#include "comm/mpi/group.hpp"\n#include "device/device.hpp"\n',
    "src/comm/join.cpp": '#include "comm/control/control.hpp"\n#include "comm/exchange/transport.hpp"\n',
    "src/pipeline/load.cpp": '#include "io/reader.hpp"\n#include "comm/exchange/transport.hpp"\n',
    "apps/main.cpp": '#include "safeshuffle/plan.hpp"\n#include <CLI/CLI.hpp>\n',
}


def check(files):
    with tempfile.TemporaryDirectory() as root:
        for name, text in files.items():
            path = Path(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return subprocess.run(
            [sys.executable, CHECK, root], capture_output=True, text=True, check=False
        )


class CheckIncludes(unittest.TestCase):
    def assert_found(self, name, text, message):
        """That `name` with `text` added to the clean tree is found, once, for the stated reason."""
        result = check({**CLEAN, name: text})
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        lines = result.stdout.splitlines()
        self.assertEqual(len(lines), 1, result.stdout)
        self.assertTrue(lines[0].startswith(f"{name}: "), lines[0])
        self.assertIn(message, lines[0])

    def test_clean_tree(self):
        result = check(CLEAN)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_empty_tree_is_not_a_pass(self):
        self.assertNotEqual(check({}).returncode, 0)

    def test_lower_module_includes_higher(self):
        self.assert_found(
            "src/core/bad.cpp", '#include "io/reader.hpp"\n', "core must not include io"
        )

    def test_io_includes_comm(self):
        self.assert_found(
            "src/io/bad.cpp", '#include "comm/mpi/group.hpp"\n', "io must not include comm/mpi"
        )

    def test_comm_includes_io(self):
        self.assert_found(
            "src/comm/bad.cpp", '  #  include "io/reader.hpp"\n', "comm must not include io"
        )

    def test_control_knows_no_device_and_no_exchange(self):
        for header, module in (("device/device.hpp", "device"),
                               ("comm/exchange/transport.hpp", "comm/exchange")):  # fmt: skip
            self.assert_found(
                "src/comm/control/bad.cpp", f'#include "{header}"\n',
                f"comm/control must not include {module}",
            )  # fmt: skip

    def test_exchange_knows_no_control(self):
        self.assert_found(
            "src/comm/exchange/bad.cpp", '#include "comm/control/control.hpp"\n',
            "comm/exchange must not include comm/control",
        )  # fmt: skip

    def test_control_reaches_no_device_through_mpi(self):
        self.assert_found(
            "src/comm/mpi/bad.hpp", '#include "device/device.hpp"\n',
            "comm/mpi must not include device",
        )  # fmt: skip

    def test_control_includes_headers_of_devices(self):
        self.assert_found(
            "src/comm/control/bad.cpp", "#include <cuda_runtime_api.h>\n",
            "comm/control must not see headers of devices",
        )  # fmt: skip

    def test_lower_module_includes_higher_public_header(self):
        self.assert_found(
            "src/device/bad.cpp", "#include <safeshuffle/plan.hpp>\n", "device must not include plan"
        )

    def test_library_includes_application(self):
        self.assert_found(
            "src/core/bad.cpp", '#include "../../apps/main.cpp"\n', "must not include applications"
        )

    def test_unknown_file(self):
        self.assert_found("src/core/bad.cpp", '#include "nowhere.hpp"\n', "not a file")

    def test_unknown_module(self):
        self.assert_found("src/misc/bad.cpp", "#include <vector>\n", "'misc' is not known")

    def test_system_header_in_pure_module(self):
        for header in ("unistd.h", "sys/stat.h", "mpi.h", "cuda_runtime.h", "nccl.h", "stdio.h"):
            with self.subTest(header):
                self.assert_found(
                    "src/plan/bad.cpp", f"#include <{header}>\n", "plan must not see"
                )

    def test_system_header_through_another(self):
        files = {**CLEAN, "src/core/system.hpp": "#include <fcntl.h>\n"}
        files["src/placement/bad.cpp"] = '#include "core/system.hpp"\n'
        result = check(files)
        self.assertIn("'fcntl.h' through src/core/system.hpp", result.stdout)

    def test_system_call_through_core(self):
        self.assert_found(
            "src/format/bad.cpp",
            '#include "core/clock.hpp"\n',
            "'unistd.h' through src/core/clock.cpp",
        )

    def test_standard_library_that_reads_files(self):
        self.assert_found("src/format/bad.cpp", "#include <fstream>\n", "format must not see")
        for code in ("bool found = std::filesystem::exists(path);", "namespace fs = std::filesystem;",
                     "using namespace std::filesystem;"):  # fmt: skip
            self.assert_found(
                "src/plan/bad.cpp", f"#include <filesystem>\n{code}\n", "must not look at the filesystem"
            )

    def test_clock_in_pure_module(self):
        self.assert_found("src/plan/bad.cpp", "#include <ctime>\n", "plan must not see")
        self.assert_found(
            "src/plan/bad.cpp", "#include <chrono>\nauto now = std::chrono::steady_clock::now();\n",
            "plan must not look at a clock",
        )  # fmt: skip

    def test_clock_through_core(self):
        files = {**CLEAN, "src/core/now.hpp": "#include <chrono>\nusing Clock = std::chrono::steady_clock;\n"}
        files["src/plan/bad.cpp"] = '#include "core/now.hpp"\n'
        result = check(files)
        self.assertEqual(
            result.stdout,
            "src/plan/bad.cpp: 'steady_clock' through src/core/now.hpp: plan must not look at a clock\n",
        )

    def test_function_of_another_library_without_its_header(self):
        self.assert_found(
            "src/plan/bad.cpp", 'extern "C" int open(const char*, int, ...);\n',
            "plan must not declare functions of other libraries",
        )  # fmt: skip

    def test_source_includes_io(self):
        self.assert_found(
            "src/source/bad.cpp", '#include "io/reader.hpp"\n', "source must not include io"
        )

    def test_vendor_header_in_public_header(self):
        self.assert_found(
            "include/safeshuffle/bad.hpp", "#include <mpi.h>\n", "a public header must not see"
        )

    def test_json_in_public_header(self):
        self.assert_found(
            "include/safeshuffle/bad.hpp",
            "#include <nlohmann/json_fwd.hpp>\n",
            "a public header must not see",
        )

    def test_interop_header_in_public_header(self):
        self.assert_found(
            "include/safeshuffle/loader.hpp",
            '#include "safeshuffle/mpi.hpp"\n',
            "'mpi.h' through include/safeshuffle/mpi.hpp",
        )

    def test_internal_header_in_public_header(self):
        self.assert_found(
            "include/safeshuffle/bad.hpp", '#include "core/clock.hpp"\n', "an internal one"
        )

    def test_json_in_header(self):
        self.assert_found(
            "src/pipeline/bad.hpp", "#include <nlohmann/json.hpp>\n", "for .cpp files only"
        )


if __name__ == "__main__":
    unittest.main()
