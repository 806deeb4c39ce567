#include "launch.hpp"

#include <cstdlib>
#include <string>

#include "safeshuffle/error.hpp"

#ifdef SAFESHUFFLE_WITH_MPI
#include "safeshuffle/mpi.hpp"
#endif

namespace safeshuffle::app {
namespace {

// Set for every rank by Open MPI, by PMIx and PMI launchers (MPICH, Slurm), in this order.
constexpr const char* rank_variables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};

const char* launcher_rank() {
  for (const char* variable : rank_variables) {
    if (const char* value = std::getenv(variable)) return value;
  }
  return nullptr;
}

#ifdef SAFESHUFFLE_WITH_MPI
void begin_mpi() {
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
    throw TransportError("MPI cannot be initialised");
  }
}
#endif

}  // namespace

int launched_rank() {
  const char* rank = launcher_rank();
  return rank == nullptr ? 0 : std::atoi(rank);
}

bool under_launcher() {
  return launcher_rank() != nullptr;
}

#ifdef SAFESHUFFLE_WITH_MPI
Communicator join_group(Device device) {
  if (!under_launcher()) return self(device);
  begin_mpi();
  return from_mpi(MPI_COMM_WORLD, device);
}

bool in_group() {
  int initialised = 0;
  MPI_Initialized(&initialised);
  return initialised != 0;
}

void leave_group(bool failed) {
  if (failed && under_launcher() && !in_group()) begin_mpi();
  if (in_group()) MPI_Finalize();
}

void abort_group(int code) {
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}
#else
Communicator join_group(Device device) {
  if (under_launcher()) {
    throw ConfigError("this safeshuffle was built without MPI and cannot run under mpirun");
  }
  return self(device);
}

bool in_group() {
  return false;
}

void leave_group(bool) {}

void abort_group(int code) {
  std::_Exit(code);
}
#endif

}  // namespace safeshuffle::app
