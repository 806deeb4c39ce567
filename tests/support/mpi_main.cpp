// Catch2 on every rank: all run the same tests in the same order, rank 0 reports, the others print
// only failures. The exit code, the same on all ranks, is the largest of all.
//
// A test must finish its collective calls before it asserts: a rank that leaves a test early would
// make a different collective call from its peers.
#include <cstdlib>
#include <iostream>
#include <sstream>

#include <mpi.h>

#include "core/detached_work.hpp"
#include "support/group.hpp"
#include "support/run_tests.hpp"
#include "support/sanitizers.hpp"

#if SAFESHUFFLE_ASAN
#include <sanitizer/lsan_interface.h>
#endif

namespace {

// Looks for leaks while MPI's components are still loaded: afterwards, their leaks have no names by
// which lsan.supp could distinguish them from ours.
void check_leaks() {
#if SAFESHUFFLE_ASAN
  __lsan_do_leak_check();
#endif
}

int run_silently(int argc, char** argv, int rank) {
  std::ostringstream report;
  std::streambuf* const terminal = std::cout.rdbuf(report.rdbuf());
  const int result = safeshuffle::testing::run_tests(argc, argv);
  std::cout.rdbuf(terminal);
  if (result != 0) std::cerr << "rank " << rank << ":\n" << report.str();
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  int result =
      rank == 0 ? safeshuffle::testing::run_tests(argc, argv) : run_silently(argc, argv, rank);
  MPI_Allreduce(MPI_IN_PLACE, &result, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  safeshuffle::testing::drop_shared_group();
  check_leaks();
  MPI_Finalize();
  std::cout << std::flush;
  if (safeshuffle::core::has_detached_work()) std::_Exit(result);
  return result;
}
