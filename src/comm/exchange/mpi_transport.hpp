// The transport over MPI: host memory, non-blocking calls only, every wait bounded.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/exchange/transport.hpp"
#include "comm/mpi/mpi_group.hpp"

namespace safeshuffle::comm {

/// Largest single MPI message by default, in bytes: small enough to see progress by, see `await`.
inline constexpr std::uint64_t default_piece = std::uint64_t{1} << 20;

/// Longer messages are sent in pieces of `piece` bytes (the same on all ranks, 1 to 2^31 - 1).
/// Throws ConfigError.
std::unique_ptr<Transport> make_mpi_transport(std::shared_ptr<MpiGroup> group,
                                              std::uint64_t piece = default_piece);

}  // namespace safeshuffle::comm
