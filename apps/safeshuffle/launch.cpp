#include "launch.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <thread>

#include "safeshuffle/bootstrap.hpp"
#include "safeshuffle/error.hpp"

#include "core/cpus.hpp"
#include "core/detached_work.hpp"
#include "core/error_wire.hpp"
#include "core/launcher.hpp"
#include "output.hpp"

#ifdef SAFESHUFFLE_WITH_MPI
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <utility>

#include "safeshuffle/mpi.hpp"

#include "comm/mpi/mpi_library.hpp"
#include "core/text.hpp"
#endif

namespace safeshuffle::app {
namespace {

// How long a failed rank lets others clean up what they were writing, before it ends them.
constexpr std::chrono::seconds cleaning_time{1};

// How long a rank that only misses another lets one report that has failed itself.
constexpr std::chrono::seconds yielding_time{2};

// How long a rank that does not report waits until the one that does ends it.
constexpr std::chrono::seconds ending_time{10};

bool has_joined = false;  // or at least begun to

// Of the ranks on this node, by a file that only one process can create; the launcher removes it
// with its directory. It must outlive the first process, since the launcher wakes up stopped ranks
// before it ends them.
bool is_first_to_report() {
  const auto directory = core::directory_of_job();
  if (!directory) return true;
  const std::string path = *directory + "/safeshuffle-has-spoken";
  const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, S_IRUSR);
  return file >= 0 || errno != EEXIST;
}

// Whether this rank is to report the error that ends it, if the ranks cannot agree on it. Waits for
// seconds, but never for another rank, so that of the ranks of a node only one reports, preferably
// one that `has_failed` itself; it is to end the group then. The others wait here to be ended. If
// the launcher provides no directory of the job (PMIx does), all report. What all ranks fail in
// before they join, such as a wrong option, rank 0 reports.
bool speaks_for_group(bool has_failed) {
  const bool at_once = has_failed && !has_joined && core::launched_rank() == 0;
  if (!at_once) std::this_thread::sleep_for(has_failed ? cleaning_time : yielding_time);
  if (is_first_to_report() || at_once) return true;
  std::this_thread::sleep_for(ending_time);
  return false;
}

Communicator join_by_bootstrap(Device device, std::chrono::milliseconds timeout) {
  Bootstrap bootstrap = Bootstrap::from_environment();
  bootstrap.timeout = timeout;
  has_joined = bootstrap.size > 1;
  return from_bootstrap(bootstrap, device);
}

#ifdef SAFESHUFFLE_WITH_MPI
// Minimum time allowed for MPI to start and to end, even with a shorter time-out: ranks are not
// started simultaneously.
constexpr std::chrono::seconds least_patience{10};

std::chrono::milliseconds patience_with_mpi = least_patience;

bool mpi_began = false;

// Calls `expired`, on a thread of its own, if it is not destroyed within `limit`. If no thread can
// be started, nothing is watched.
class Watchdog {
 public:
  Watchdog(std::chrono::milliseconds limit, std::function<void()> expired) {
    const auto watch = [this, limit, expired = std::move(expired)](const std::stop_token& over) {
      std::unique_lock lock(mutex_);
      over_.wait_for(lock, over, limit, [] { return false; });
      if (!over.stop_requested()) expired();
    };
    try {
      thread_ = std::jthread(watch);
    } catch (const std::system_error&) {  // the watched call will probably succeed
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any over_;
  std::jthread thread_;
};

// Without MPI, which is stuck in this step; the launcher then ends the other ranks.
[[noreturn]] void end_stuck(const std::string& step) {
  const ErrorRecord error{
      .kind = ErrorKind::timeout,
      .cause = step + ": not all ranks finished within " + core::seconds_text(patience_with_mpi)};
  if (speaks_for_group(false)) print_error(error);
  std::_Exit(static_cast<int>(error.kind));
}

void begin_mpi() {
  const Watchdog watchdog(patience_with_mpi, [] { end_stuck("starting MPI"); });
  int provided = 0;
  if (comm::mpi().init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
    throw TransportError("MPI cannot be initialised");
  }
  mpi_began = true;
}

Communicator join_by_mpi(Device device, std::chrono::milliseconds timeout) {
  patience_with_mpi = std::max<std::chrono::milliseconds>(timeout, least_patience);
  comm::mpi();  // where it is missing, it is on all ranks
  has_joined = true;
  begin_mpi();
  return from_mpi(comm::mpi().comm_world, device, timeout);
}

// That waits for all ranks, so that no exit code makes the launcher end the job before rank 0 has
// reported the error.
void finish_mpi(int code) {
  if (!mpi_began) return;
  const Watchdog watchdog(patience_with_mpi, [code] {
    if (code != EXIT_SUCCESS) std::_Exit(code);  // the failure has already been reported
    end_stuck("ending MPI");
  });
  comm::mpi().finalize();
}

// Including ranks that are stuck; without MPI, only this one, and the launcher ends the others.
[[noreturn]] void abort_group(int code) {
  const Watchdog watchdog(least_patience, [code] { std::_Exit(code); });
  if (mpi_began) comm::mpi().abort(comm::mpi().comm_world, code);
  std::_Exit(code);
}
#else
Communicator join_by_mpi(Device, std::chrono::milliseconds) {
  throw ConfigError(
      "this safeshuffle was built without MPI: under mpirun, set SAFESHUFFLE_RENDEZVOUS");
}

void finish_mpi(int) {}

[[noreturn]] void abort_group(int code) {
  std::_Exit(code);
}
#endif

bool others_may_wait() {
  return has_joined || core::how_launched() == core::Launch::mpi;
}

// Whether every rank has the same error.
bool is_agreed(const ErrorRecord& error) {
  return error.rank >= 0 && is_common(error.kind);
}

// Whether this rank has failed itself, and not only lost another.
bool is_own(const ErrorRecord& error) {
  return error.kind != ErrorKind::timeout && error.rank < 0;
}

[[noreturn]] void end_group(ErrorRecord error) {
  const bool own = is_own(error);
  if (own) error.rank = core::launched_rank();
  if (speaks_for_group(own)) print_error(error);
  abort_group(static_cast<int>(error.kind));
}

}  // namespace

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

int report_failure() {
  const ErrorRecord error = core::current_error();
  if (others_may_wait() && !is_agreed(error)) end_group(error);
  if (core::launched_rank() == 0) print_error(error);
  constexpr int by_signal = 128;
  if (error.kind == ErrorKind::cancelled) return by_signal + error.code;
  return static_cast<int>(error.kind);
}

void leave_group(int code) {
  finish_mpi(code);
  if (core::has_detached_work()) std::_Exit(code);
}

}  // namespace safeshuffle::app
