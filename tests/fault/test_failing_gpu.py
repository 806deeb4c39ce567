"""The simulated GPU of one rank fails at some operation: that rank says so, and the others end."""

import os
import unittest

import job
import plain_ranks
from case import LOAD_OPTIONS, FaultCase

TIMEOUT_SECONDS = 3
RANKS = 3
FAILING = 1
CUDA_ERROR, NO_MEMORY, LOST = 6, 7, 9
COUNTS = (1, 2, 4, 7, 12, 20)  # operations up to and with the one that fails
CAUSE = "cudaErrorIllegalAddress|unhandled cuda error"  # as CUDA, or NCCL, has it

# Becomes the command.
WRAPPER = f"""\
rank=${{OMPI_COMM_WORLD_RANK:-$RANK}}
if [ "$rank" = {FAILING} ]; then export SIMULATED_GPU_FAIL_AFTER=$FAIL_AFTER; fi
exec "$@"
"""


class FailingGpu(FaultCase):
    def setUp(self):
        super().setUp()
        wrapper = self.work / "wrapper"
        wrapper.write_text(WRAPPER, encoding="utf-8")
        self.wrap("MPIEXEC", wrapper)
        self.wrap("RANK_WRAPPER", wrapper)

    def wrap(self, variable, wrapper):
        self.set(variable, f"{os.environ[variable]} sh {wrapper}")

    def set(self, variable, value):
        self.addCleanup(os.environ.__setitem__, variable, os.environ.get(variable, ""))
        os.environ[variable] = value

    def command(self):
        return [*self.load_command(), *LOAD_OPTIONS, "--timeout", TIMEOUT_SECONDS,
                "--verify", "full", "--save-sharded", self.saved]  # fmt: skip

    def test_over_mpi(self):
        for count in COUNTS:
            with self.subTest(count=count):
                self.set("FAIL_AFTER", str(count))
                result = job.run(RANKS, *self.command())
                self.assert_fails(result, CUDA_ERROR, f"rank {FAILING}: ")
                self.assertRegex(result.messages[0], CAUSE)
                # mpirun sometimes fails itself while it ends a job (it says ORTE_ERROR_LOG). Its
                # ranks then end at once, and hidden files are left for the next save to remove.
                self.assert_nothing_saved(killed=True)

    def test_no_memory_without_mpi(self):
        little = {FAILING: {"SIMULATED_GPU_MEMORY": "1000000"}}  # not enough for control messages
        with plain_ranks.tcp_address() as address:
            results = plain_ranks.run(RANKS, address, *self.command(), own=little)
        for rank, result in results.items():
            self.assertEqual(result.code, NO_MEMORY, result.errors)
            self.assertEqual(len(result.messages), 1 if rank == 0 else 0)
        self.assertIn(f"rank {FAILING}: ", results[0].messages[0])

    def test_without_mpi(self):
        for count in COUNTS:
            with self.subTest(count=count), plain_ranks.tcp_address() as address:
                self.set("FAIL_AFTER", str(count))
                results = plain_ranks.run(RANKS, address, *self.command())
                for result in results.values():
                    self.assertEqual(len(result.messages), 1, result.errors)
                    self.assertIn(result.code, {CUDA_ERROR, LOST})
                    self.assertLess(result.seconds, TIMEOUT_SECONDS + job.SLACK_SECONDS)
                self.assertEqual(results[FAILING].code, CUDA_ERROR)
                self.assertRegex(results[FAILING].messages[0], CAUSE)
                self.assert_nobody_left()
                self.assert_nothing_saved()


if __name__ == "__main__":
    unittest.main()
