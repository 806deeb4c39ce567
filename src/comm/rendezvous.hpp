// How ranks without a communicator agree on the one text they need to make one. No MPI, no CUDA.
#pragma once

#include <functional>
#include <string>

#include "safeshuffle/bootstrap.hpp"

#include "core/deadline.hpp"

namespace safeshuffle::comm {

/// Runs `step` on every rank and returns what that of rank 0 returns, at most 1 MiB. Collective: no
/// rank returns before all have come to the address in `self`. The deadline is for the whole call,
/// `step` included, and is not restarted; `self.timeout` is not used.
///
/// What `step` throws on one rank, all ranks throw, with `rank` filled in and long texts cut: those
/// that are there at once, the others as they come. Rank 0's own error goes before all others; then
/// that which rank 0 knows first, of several at a time that of the lowest rank. A rank that failed
/// and does not reach rank 0 throws its own error.
///
/// Ranks that differ in the group size, or two that claim the same rank, make all that are there
/// throw ConfigError; so do ranks of incompatible versions of the library. An invalid address makes
/// each rank throw ConfigError by itself. Throws TimeoutError, naming the ranks that did not come
/// or the reason why rank 0 was not reached; TransportError where rank 0 cannot listen.
///
/// The same address may be used again as soon as the call has returned.
std::string rendezvous(const Bootstrap& self, const std::function<std::string()>& step,
                       core::Deadline deadline);

}  // namespace safeshuffle::comm
