// Control messages through the caller's own means of communication.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace safeshuffle {

/// Takes this rank's text, of any length and content, and returns every rank's, in rank order.
/// Collective: the library calls it on the thread of its own collective calls, in the same order on
/// all ranks, and each call waits for all ranks. If a rank does not come within `timeout` of this
/// one, it must throw, best a TimeoutError whose record names that rank; other exceptions that are
/// not of this library become TransportErrors. It is not called again after it has thrown.
using AllGather = std::function<std::vector<std::string>(const std::string& mine,
                                                         std::chrono::milliseconds timeout)>;

}  // namespace safeshuffle
