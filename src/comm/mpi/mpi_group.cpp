#include "comm/mpi/mpi_group.hpp"

#include <memory>

#include "comm/mpi/mpi_call.hpp"
#include "comm/mpi/mpi_library.hpp"
#include "core/backoff.hpp"
#include "core/deadline.hpp"
#include "core/lost_peers.hpp"

namespace safeshuffle::comm {
namespace {

bool initialised() {
  int flag = 0;
  mpi().initialized(&flag);
  return flag != 0;
}

bool finalised() {
  int flag = 0;
  mpi().finalized(&flag);
  return flag != 0;
}

/// While it lives, failing calls on a communicator return instead of aborting; then the
/// communicator's own error handler is restored.
class ErrorsReturned {
 public:
  explicit ErrorsReturned(MPI_Comm comm) : comm_(comm) {
    check_mpi(mpi().comm_get_errhandler(comm_, &previous_), "MPI_Comm_get_errhandler");
    mpi().comm_set_errhandler(comm_, mpi().errors_return);
  }
  ~ErrorsReturned() {
    mpi().comm_set_errhandler(comm_, previous_);
    mpi().errhandler_free(&previous_);
  }
  ErrorsReturned(const ErrorsReturned&) = delete;
  ErrorsReturned& operator=(const ErrorsReturned&) = delete;

 private:
  MPI_Comm comm_;
  MPI_Errhandler previous_{};
};

void require_mpi(MPI_Comm comm) {
  if (!initialised()) throw ConfigError("MPI is not initialised");
  if (finalised()) throw ConfigError("MPI is already finalised");
  require_mpi_thread();
  if (comm == mpi().comm_null) throw ConfigError("the MPI communicator is MPI_COMM_NULL");
}

void require_intracommunicator(MPI_Comm comm) {
  int inter = 0;
  check_mpi(mpi().comm_test_inter(comm, &inter), "MPI_Comm_test_inter");
  if (inter != 0) throw ConfigError("the MPI communicator is an intercommunicator");
}

bool is_complete(MPI_Request& request) {
  int complete = 0;
  check_mpi(mpi().test(&request, &complete, mpi().status_ignore), "MPI_Comm_idup");
  return complete != 0;
}

MPI_Comm duplicate(MPI_Comm comm, std::chrono::milliseconds timeout) {
  require_mpi(comm);
  const ErrorsReturned guard(comm);
  require_intracommunicator(comm);
  // Not on the stack: MPI writes to it when the last rank joins, even after this one timed out.
  auto copy = std::make_unique<MPI_Comm>(mpi().comm_null);
  MPI_Request request = mpi().request_null;
  check_mpi(mpi().comm_idup(comm, copy.get(), &request), "MPI_Comm_idup");
  const core::Deadline deadline(timeout);
  core::Backoff backoff;
  while (!is_complete(request)) {
    if (deadline.expired()) {
      static_cast<void>(copy.release());  // never freed
      raise(core::lost_peers("duplicating the MPI communicator", {}, timeout));
    }
    backoff.pause();
  }
  return *copy;
}

}  // namespace

void require_mpi_thread() {
  if (finalised()) return;  // MPI must not be called any more; see require_usable
  int level = MPI_THREAD_SINGLE;
  int is_main = 0;
  check_mpi(mpi().query_thread(&level), "MPI_Query_thread");
  check_mpi(mpi().is_thread_main(&is_main), "MPI_Is_thread_main");
  if (level > MPI_THREAD_FUNNELED || is_main != 0) return;
  throw ConfigError(
      "MPI was initialised without MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE: only the thread "
      "that initialised it may call MPI");
}

MpiGroup::MpiGroup(MPI_Comm comm, std::chrono::milliseconds timeout)
    : comm_(duplicate(comm, timeout)) {
  int rank = 0;
  int size = 0;
  check_mpi(mpi().comm_set_errhandler(comm_, mpi().errors_return), "MPI_Comm_set_errhandler");
  check_mpi(mpi().comm_rank(comm_, &rank), "MPI_Comm_rank");
  check_mpi(mpi().comm_size(comm_, &size), "MPI_Comm_size");
  rank_ = static_cast<std::uint32_t>(rank);
  size_ = static_cast<std::uint32_t>(size);
}

MpiGroup::~MpiGroup() {
  if (!broken_ && !finalised()) mpi().comm_free(&comm_);
}

void MpiGroup::require_usable() const {
  if (broken_) {
    throw TransportError("the MPI transport cannot be used any more: an operation was abandoned");
  }
  if (finalised()) throw TransportError("MPI has been finalised");
}

}  // namespace safeshuffle::comm
