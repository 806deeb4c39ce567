#include "launch.hpp"

#include <cstdlib>
#include <string>

#include "safeshuffle/bootstrap.hpp"
#include "safeshuffle/error.hpp"

#ifdef SAFESHUFFLE_WITH_MPI
#include "safeshuffle/mpi.hpp"
#endif

namespace safeshuffle::app {
namespace {

// Set for every rank by Open MPI, by PMIx and PMI launchers (MPICH, Slurm), in this order.
constexpr const char* rank_variables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};

bool is_set(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

// Ranks that are told where to meet are to meet there, also if a launcher of MPI has started them.
bool has_rendezvous() {
  return is_set("SAFESHUFFLE_RENDEZVOUS");
}

const char* mpi_rank() {
  if (has_rendezvous()) return nullptr;
  for (const char* variable : rank_variables) {
    if (is_set(variable)) return std::getenv(variable);
  }
  return nullptr;
}

// Started by something that knows nothing of MPI, but says where the ranks meet.
bool under_bootstrap() {
  if (mpi_rank() != nullptr) return false;
  return has_rendezvous() || (is_set("RANK") && is_set("WORLD_SIZE") && is_set("MASTER_ADDR"));
}

// `join_group` reports what is wrong with the environment; until then each process may print.
int bootstrap_rank() try {
  return static_cast<int>(Bootstrap::from_environment().rank);
} catch (const Error&) {
  return 0;
}

bool joined_by_bootstrap = false;

Communicator join_by_bootstrap(Device device, std::chrono::milliseconds timeout) {
  Bootstrap bootstrap = Bootstrap::from_environment();
  bootstrap.timeout = timeout;
  joined_by_bootstrap = bootstrap.size > 1;
  return from_bootstrap(bootstrap, device);
}

#ifdef SAFESHUFFLE_WITH_MPI
void begin_mpi() {
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
    throw TransportError("MPI cannot be initialised");
  }
}

bool mpi_began() {
  int initialised = 0;
  MPI_Initialized(&initialised);
  return initialised != 0;
}

Communicator join_by_mpi(Device device, std::chrono::milliseconds timeout) {
  begin_mpi();
  return from_mpi(MPI_COMM_WORLD, device, timeout);
}
#else
Communicator join_by_mpi(Device, std::chrono::milliseconds) {
  throw ConfigError(
      "this safeshuffle was built without MPI: under mpirun, set SAFESHUFFLE_RENDEZVOUS");
}
#endif

}  // namespace

int launched_rank() {
  if (const char* const rank = mpi_rank()) return std::atoi(rank);
  return under_bootstrap() ? bootstrap_rank() : 0;
}

bool under_launcher() {
  return mpi_rank() != nullptr || under_bootstrap();
}

Communicator join_group(Device device, std::chrono::milliseconds timeout) {
  if (under_bootstrap()) return join_by_bootstrap(device, timeout);
  return mpi_rank() != nullptr ? join_by_mpi(device, timeout) : self(device);
}

#ifdef SAFESHUFFLE_WITH_MPI
bool in_group() {
  return joined_by_bootstrap || mpi_began();
}

void leave_group(bool failed) noexcept try {
  if (failed && mpi_rank() != nullptr && !mpi_began()) begin_mpi();
  if (mpi_began()) MPI_Finalize();
} catch (...) {  // the process ends with the exit code that it has
}

void abort_group(int code) {
  if (mpi_began()) MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}
#else
bool in_group() {
  return joined_by_bootstrap;
}

void leave_group(bool) noexcept {}

void abort_group(int code) {
  std::_Exit(code);
}
#endif

}  // namespace safeshuffle::app
