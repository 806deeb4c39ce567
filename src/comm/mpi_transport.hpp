// The transport over MPI: host memory, non-blocking calls only, every wait bounded.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include <mpi.h>

#include "comm/transport.hpp"

namespace safeshuffle::comm {

/// Largest single MPI message by default, in bytes; MPI counts with int.
inline constexpr std::uint64_t default_piece = std::uint64_t{1} << 30;

/// A transport over a duplicate of `comm`. Collective over `comm`: all ranks must call it within
/// `timeout`. Longer messages travel in pieces of `piece` bytes (the same on all ranks, 1 to
/// 2^31 - 1). Throws ConfigError if MPI is not initialised or `comm` is not an intracommunicator,
/// TransportError if an MPI call fails, TimeoutError.
std::unique_ptr<Transport> make_mpi_transport(MPI_Comm comm, std::chrono::milliseconds timeout,
                                              std::uint64_t piece = default_piece);

}  // namespace safeshuffle::comm
