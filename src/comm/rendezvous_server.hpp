// Rank 0's side of a rendezvous. Each other rank connects, greets, waits for the answer and
// acknowledges it; if a connection fails, the rank connects again.
#pragma once

#include <string>

#include "safeshuffle/bootstrap.hpp"

#include "comm/socket.hpp"
#include "core/deadline.hpp"

namespace safeshuffle::comm {

/// Answers the ranks of `self`'s group and of `job` that connect to `listener`, until all have
/// acknowledged or the deadline expires. Returns the answer sent to them: `answer`, or the error of
/// a rank, or that ranks are missing.
std::string serve_rendezvous(Socket listener, const Bootstrap& self, const std::string& job,
                             std::string answer, const core::Deadline& deadline);

}  // namespace safeshuffle::comm
