// Rank 0's side of a rendezvous. Each other rank connects, greets, waits for the answer and
// acknowledges it; if a connection fails, the rank connects again.
#pragma once

#include <string>

#include "safeshuffle/bootstrap.hpp"

#include "comm/socket.hpp"
#include "core/deadline.hpp"

namespace safeshuffle::comm {

/// Answers the ranks of the group of `self` and of `job` that connect to `listener`, until all have
/// acknowledged or the deadline is over. Returns the answer that they were given: `answer`, or an
/// error of theirs, or that they did not all come.
std::string serve_rendezvous(Socket listener, const Bootstrap& self, const std::string& job,
                             std::string answer, const core::Deadline& deadline);

}  // namespace safeshuffle::comm
