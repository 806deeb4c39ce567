// Agreement on errors: all ranks throw the same one or none.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "safeshuffle/error.hpp"

#include "comm/transport.hpp"

namespace safeshuffle::comm {

/// Collective. Returns every rank's `mine` if no rank passes an error; else throws, on all ranks,
/// the error of the lowest rank that has one, with `rank` filled in. Here and below, a peer that
/// does not take part within `timeout` is a TimeoutError.
std::vector<std::string> agree(Transport& transport, std::string_view mine,
                               const std::optional<ErrorRecord>& error,
                               std::chrono::milliseconds timeout);

/// Runs `step` and agrees on its outcome: what it throws, all ranks throw. Collective. For steps
/// that are short, or that wait for storage or a device, which may hang: a peer whose step takes
/// longer than `timeout` counts as lost.
std::vector<std::string> agree_on(Transport& transport, std::chrono::milliseconds timeout,
                                  const std::function<std::string()>& step);

/// Tells the peers, now and then, that this rank is still at work. Throws the error of a peer that
/// failed meanwhile, which must not be caught within the step.
using Heartbeat = std::function<void()>;

/// As `agree_on`, for a step that may take longer than `timeout`: peers wait for a rank as long as
/// its step calls the heartbeat, which is cheap, before a quarter of `timeout` is over.
std::vector<std::string> agree_with_heartbeat(
    Transport& transport, std::chrono::milliseconds timeout,
    const std::function<std::string(const Heartbeat&)>& step);

/// Runs `computation` on a thread of its own, with `beat` called on this one until it is over.
/// Throws what it throws, MemoryError if there can be no thread, and what `beat` throws, but not
/// before the computation is over. It may take any time, so it must not wait for anything that may
/// hang, such as storage, a device or a peer: nobody would notice.
void beat_during(const Heartbeat& beat, const std::function<void()>& computation);

/// As `agree_on`, for a computation in the sense of `beat_during`: it may take longer than
/// `timeout`.
std::vector<std::string> agree_on_computation(Transport& transport,
                                              std::chrono::milliseconds timeout,
                                              const std::function<std::string()>& computation);

}  // namespace safeshuffle::comm
