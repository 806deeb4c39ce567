// The library's own duplicate of a user's MPI communicator.
#pragma once

#include <chrono>
#include <cstdint>

#include <mpi.h>

namespace safeshuffle::comm {

/// Owns the duplicate. Frees it on destruction, unless MPI is finalised by then or the group is
/// broken: freeing is collective, and a broken group's ranks no longer make the same calls. The MPI
/// standard lets it wait for the peers without a limit; Open MPI and MPICH do not wait.
class MpiGroup {
 public:
  /// Collective. Throws ConfigError, TransportError, TimeoutError if not all ranks have joined
  /// within `timeout`; MPI does not say which are missing.
  MpiGroup(MPI_Comm comm, std::chrono::milliseconds timeout);
  ~MpiGroup();
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  MPI_Comm comm() const noexcept { return comm_; }
  std::uint32_t rank() const noexcept { return rank_; }
  std::uint32_t size() const noexcept { return size_; }

  /// After an operation was abandoned: its messages may still arrive, and could be mistaken for
  /// those of later operations.
  void break_off() noexcept { broken_ = true; }

  /// Throws TransportError if broken or MPI is finalised.
  void require_usable() const;

 private:
  MPI_Comm comm_;
  std::uint32_t rank_ = 0;
  std::uint32_t size_ = 0;
  bool broken_ = false;
};

/// Throws ConfigError if MPI was initialised for calls from one thread only, and this is another
/// one. Thread-safe.
void require_mpi_thread();

}  // namespace safeshuffle::comm
