// How ranks without a communicator agree on the text they need to create one. No MPI, no CUDA.
#pragma once

#include <functional>
#include <string>

#include "safeshuffle/bootstrap.hpp"

#include "core/deadline.hpp"

namespace safeshuffle::comm {

/// Runs `step` on every rank and returns rank 0's result, at most 1 MiB. Collective: no rank
/// returns before all have arrived at the address in `self`. The deadline is for the whole call,
/// including `step`, and is not restarted; `self.timeout` is not used.
///
/// What `step` throws on one rank, all ranks throw, with `rank` filled in and long texts shortened:
/// those already present at once, the others when they arrive. Rank 0's own error takes precedence;
/// then the one that reaches rank 0 first, and of several that arrive together, that of the lowest
/// rank. A rank that failed and cannot reach rank 0 throws its own error.
///
/// If ranks differ in the group size, two claim the same rank, or ranks run incompatible versions
/// of the library, all that are present throw ConfigError. An invalid address makes each rank throw
/// ConfigError by itself. Throws TimeoutError, naming the missing ranks or the reason why rank 0
/// was not reached; TransportError if rank 0 cannot listen.
///
/// The same address may be used again as soon as the call has returned.
std::string rendezvous(const Bootstrap& self, const std::function<std::string()>& step,
                       core::Deadline deadline);

}  // namespace safeshuffle::comm
