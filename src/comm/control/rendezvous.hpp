// How ranks that have only an address connect to each other. No MPI, no CUDA.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/control/socket.hpp"
#include "core/deadline.hpp"

namespace safeshuffle::comm {

/// One rank and where its group meets: "tcp://HOST:PORT" or "tcp://HOST:PORT/JOB", at rank 0.
struct Member {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::string address;
};

/// Connects rank 0 to every other rank. Returns its connections by rank, the first of them unused,
/// and on the other ranks one connection, to rank 0. Collective: no rank returns before all have
/// arrived. Rank 0 listens at the address while it is called, or at `listener`. `timeout` is for
/// the whole call; ranks other than 0 wait half a second longer, so that rank 0 can tell them who
/// is missing.
///
/// If ranks differ in the group size, two claim the same rank, or ranks run incompatible versions
/// of the library, all that are present throw ConfigError. An invalid address makes each rank throw
/// ConfigError by itself. Throws TimeoutError, naming the missing ranks or the reason why rank 0
/// was not reached; TransportError if rank 0 cannot listen.
///
/// The same address may be used again as soon as the call has returned.
std::vector<Socket> rendezvous(const Member& self, std::chrono::milliseconds timeout,
                               std::optional<Socket> listener = {});

/// The part of rank 0: answers the ranks of `self`'s group and of `job` that connect to `listener`,
/// until all are answered or the deadline expires. Throws the error that it answered, if any.
std::vector<Socket> serve_rendezvous(Socket listener, const Member& self, const std::string& job,
                                     const core::Deadline& deadline);

}  // namespace safeshuffle::comm
