// How ranks without a communicator agree on the one text they need to make one. No MPI, no CUDA.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/deadline.hpp"

namespace safeshuffle::comm {

/// Who meets where.
struct Meeting {
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  std::string address;  ///< see Bootstrap::address; a world of one needs none
};

/// Calls `make` on rank 0 and returns what it returns, at most 1 MiB, on every rank. Collective: no
/// rank returns before all have come. The deadline is for the whole meeting and is not restarted.
///
/// What `make` throws, all ranks throw. Ranks that differ in the world size, or two that claim the
/// same rank, make all that are there throw ConfigError. Throws TimeoutError, naming the ranks that
/// did not come or the reason why rank 0 was not reached; TransportError where rank 0 cannot
/// listen; IoError where a rank cannot write its file.
///
/// The same address may be used again as soon as the call has returned.
std::string rendezvous(const Meeting& meeting, const std::function<std::string()>& make,
                       core::Deadline deadline);

}  // namespace safeshuffle::comm
