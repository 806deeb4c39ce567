// The rendezvous at a TCP port of rank 0. Each other rank connects, greets, waits for the answer
// and acknowledges it; if a connection fails, it comes again.
#pragma once

#include <functional>
#include <string>

#include "comm/rendezvous.hpp"
#include "core/deadline.hpp"

namespace safeshuffle::comm {

/// See `rendezvous`; the address is tcp://HOST:PORT or tcp://HOST:PORT/JOB.
std::string meet_by_tcp(const Meeting& meeting, const std::function<std::string()>& step,
                        const core::Deadline& deadline);

}  // namespace safeshuffle::comm
