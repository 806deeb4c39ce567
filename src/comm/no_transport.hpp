// For ranks that cannot send each other data, only control messages.
#pragma once

#include <memory>

#include "comm/control/control.hpp"
#include "comm/exchange/transport.hpp"

namespace safeshuffle::comm {

/// Keeps ranks in step that read all they keep themselves. An exchange that has messages throws
/// ConfigError.
std::unique_ptr<Transport> make_no_transport(std::shared_ptr<Control> control);

}  // namespace safeshuffle::comm
