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
bool mpi_started() {
  int initialised = 0;
  MPI_Initialized(&initialised);
  return initialised != 0;
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
void start_mpi() {
  if (!under_launcher() || mpi_started()) return;
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
    throw TransportError("MPI cannot be initialised");
  }
}

void end_mpi() {
  if (!mpi_started()) return;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
}

Communicator join_group(DeviceSpec device) {
  start_mpi();
  return mpi_started() ? from_mpi(MPI_COMM_WORLD, device) : self(device);
}

void abort_group(int code) {
  if (mpi_started()) MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}
#else
void start_mpi() {}
void end_mpi() {}

Communicator join_group(DeviceSpec device) {
  if (under_launcher()) {
    throw ConfigError("this safeshuffle was built without MPI and cannot run under mpirun");
  }
  return self(device);
}

void abort_group(int code) {
  std::_Exit(code);
}
#endif

}  // namespace safeshuffle::app
