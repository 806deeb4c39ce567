// Control messages over TCP: rank 0 is connected to every other rank and passes their texts on.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "comm/control/control.hpp"
#include "comm/control/rendezvous.hpp"

namespace safeshuffle::comm {

/// The group that meets at the address of `self`; see `rendezvous`, which it throws the errors of.
/// The connections last as long as the control. A rank whose connection breaks is named to all at
/// once, one that stops after the time-out. Each error is rank 0's, so all ranks throw the same,
/// unless rank 0 itself is lost.
std::unique_ptr<Control> make_tcp_control(const Member& self, std::chrono::milliseconds timeout,
                                          std::optional<Socket> listener = {});

}  // namespace safeshuffle::comm
