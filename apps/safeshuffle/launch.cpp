#include "launch.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "safeshuffle/bootstrap.hpp"

#include "core/cpus.hpp"
#include "core/launcher.hpp"

#ifdef SAFESHUFFLE_WITH_MPI
#include "safeshuffle/mpi.hpp"

#include "comm/control/agreement.hpp"
#include "comm/control/mpi_control.hpp"
#include "core/text.hpp"
#include "output.hpp"
#include "speaker.hpp"
#include "watchdog.hpp"
#endif

namespace safeshuffle::app {
namespace {

bool joined_by_bootstrap = false;

Communicator join_by_bootstrap(Device device, std::chrono::milliseconds timeout) {
  Bootstrap bootstrap = Bootstrap::from_environment();
  bootstrap.timeout = timeout;
  joined_by_bootstrap = bootstrap.size > 1;
  return from_bootstrap(bootstrap, device);
}

#ifdef SAFESHUFFLE_WITH_MPI
// Minimum time allowed for MPI to start and to end, even with a shorter time-out: ranks are not
// started simultaneously.
constexpr std::chrono::seconds least_patience{10};

// How long a failed rank waits for the others to learn of the failure before it ends them.
constexpr std::chrono::seconds failing_patience{10};

std::chrono::milliseconds patience_with_mpi = least_patience;

ErrorRecord stuck(const std::string& step, std::chrono::milliseconds limit) {
  return {.kind = ErrorKind::timeout,
          .cause = step + ": not all ranks finished within " + core::seconds_text(limit)};
}

// Without MPI, which is stuck; the launcher then ends the other ranks.
[[noreturn]] void end_process(const ErrorRecord& error) {
  if (speaks_for_node()) {
    print_error(error);
  } else {
    await_end();
  }
  std::_Exit(static_cast<int>(error.kind));
}

void begin_mpi(const ErrorRecord& if_stuck, std::chrono::milliseconds limit) {
  const Watchdog watchdog(limit, [&if_stuck] { end_process(if_stuck); });
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

// The first collective step: each rank tells whether it has already failed.
void share_failure(const std::optional<ErrorRecord>& error, std::chrono::milliseconds timeout) {
  const auto control =
      comm::make_mpi_control(std::make_shared<comm::MpiGroup>(MPI_COMM_WORLD, timeout));
  comm::agree(*control, {}, error, timeout);
}

Communicator join_by_mpi(Device device, std::chrono::milliseconds timeout) {
  patience_with_mpi = std::max<std::chrono::milliseconds>(timeout, least_patience);
  begin_mpi(stuck("starting MPI", patience_with_mpi), patience_with_mpi);
  share_failure({}, timeout);
  return from_mpi(MPI_COMM_WORLD, device, timeout);
}
#else
Communicator join_by_mpi(Device, std::chrono::milliseconds) {
  throw ConfigError(
      "this safeshuffle was built without MPI: under mpirun, set SAFESHUFFLE_RENDEZVOUS");
}
#endif

}  // namespace

void await_end() {
  std::this_thread::sleep_for(std::chrono::seconds(10));
}

void leave_default_binding() {
  if (core::is_bound_by_default() && core::are_of_one_core(core::allowed_cpus())) {
    core::bind_this_thread(core::permitted_cpus());
  }
}

Communicator join_group(Device device, std::chrono::milliseconds timeout) {
  switch (core::how_launched()) {
    case core::Launch::rendezvous:
      return join_by_bootstrap(device, timeout);
    case core::Launch::mpi:
      return join_by_mpi(device, timeout);
    case core::Launch::alone:
      break;
  }
  return self(device);
}

#ifdef SAFESHUFFLE_WITH_MPI
bool in_group() {
  return joined_by_bootstrap || mpi_began();
}

ErrorRecord common_failure(ErrorRecord own) {
  if (core::how_launched() != core::Launch::mpi || mpi_began()) return own;
  try {
    ErrorRecord if_stuck = own;
    if_stuck.rank = core::launched_rank();
    begin_mpi(if_stuck, failing_patience);
    share_failure(own, failing_patience);
  } catch (const Error& error) {
    if (error.record().rank >= 0 && is_common(error.record().kind)) return error.record();
  }
  return own;
}

bool speaks_for_group(bool has_failed) {
  if (!mpi_began()) return true;
  return speaks_for_job(has_failed ? Knowledge::own_failure : Knowledge::lost_another);
}

void leave_group(int code) {
  if (!mpi_began()) return;
  const Watchdog watchdog(patience_with_mpi, [code] {
    if (code != EXIT_SUCCESS) std::_Exit(code);  // the failure has already been reported
    end_process(stuck("ending MPI", patience_with_mpi));
  });
  MPI_Finalize();
}

void abort_group(int code) {
  const Watchdog watchdog(least_patience, [code] { std::_Exit(code); });
  if (mpi_began()) MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}
#else
bool in_group() {
  return joined_by_bootstrap;
}

ErrorRecord common_failure(ErrorRecord own) {
  return own;
}

bool speaks_for_group(bool) {
  return true;
}

void leave_group(int) {}

void abort_group(int code) {
  std::_Exit(code);
}
#endif

}  // namespace safeshuffle::app
