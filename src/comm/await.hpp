// Waiting for an exchange, with the lost ranks named.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "comm/control/control.hpp"
#include "comm/exchange/transport.hpp"

namespace safeshuffle::comm {

/// Waits until `pending` is done; calls `meanwhile` often. Throws TransportError, and TimeoutError
/// if it is not done soon after `timeout` or a peer is lost. If the exchange cannot tell which peer
/// it is, all are asked through `control`. `what` is the operation, for the error.
void await(Pending& pending, Control& control, const std::string& what,
           std::chrono::milliseconds timeout, const std::function<void()>& meanwhile);

}  // namespace safeshuffle::comm
