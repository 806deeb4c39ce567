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

/// Runs `step` on every rank and returns what that of rank 0 returns, at most 1 MiB. Collective: no
/// rank returns before all have come. The deadline is for the whole meeting, `step` included, and
/// is not restarted.
///
/// What `step` throws on one rank, all ranks throw, with `rank` filled in and long texts cut: those
/// that are there at once, the others as they come. Rank 0's own error goes before all others; then
/// that which rank 0 knows first, of several at a time that of the lowest rank. A rank that failed
/// and does not reach rank 0 throws its own error.
///
/// Ranks that differ in the world size, or two that claim the same rank, make all that are there
/// throw ConfigError. Throws TimeoutError, naming the ranks that did not come or the reason why
/// rank 0 was not reached; TransportError where rank 0 cannot listen; IoError where a rank cannot
/// write its file.
///
/// The same address may be used again as soon as the call has returned.
std::string rendezvous(const Meeting& meeting, const std::function<std::string()>& step,
                       core::Deadline deadline);

}  // namespace safeshuffle::comm
