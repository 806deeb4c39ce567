// Agreement on errors: all ranks throw the same one or none.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "safeshuffle/error.hpp"

#include "comm/control/control.hpp"

namespace safeshuffle::comm {

/// Collective. Returns every rank's `mine` if no rank passes an error; else throws, on all ranks,
/// the error of the lowest rank that has one, with `rank` filled in. Here and below, a peer that
/// does not participate within `timeout` is a TimeoutError. Those below with a step are also where
/// a call can be cancelled (Control::check_cancelled).
std::vector<std::string> agree(Control& control, std::string_view mine,
                               const std::optional<ErrorRecord>& error,
                               std::chrono::milliseconds timeout);

/// Runs `step` and agrees on its outcome: what it throws, all ranks throw. Collective. For steps
/// that are short, or that wait for storage or a device, which may hang: a peer whose step takes
/// longer than `timeout` is considered lost.
std::vector<std::string> agree_on(Control& control, std::chrono::milliseconds timeout,
                                  const std::function<std::string()>& step);

/// Tells the peers, from time to time, that this rank is making progress. Throws the error of a
/// peer that failed meanwhile, which must not be caught within the step.
using Heartbeat = std::function<void()>;

/// As `agree_on`, for a step that may take longer than `timeout`: peers wait for a rank as long as
/// its step calls the heartbeat, which is cheap, at least every quarter of `timeout`.
std::vector<std::string> agree_with_heartbeat(
    Control& control, std::chrono::milliseconds timeout,
    const std::function<std::string(const Heartbeat&)>& step);

/// Runs `computation` on a separate thread and calls `beat` on this one until it has finished.
/// Throws what it throws, MemoryError if no thread can be started, and what `beat` throws, but not
/// before the computation has finished. It may take any time, so it must not wait for anything that
/// may hang, such as storage, a device or a peer: the hang would go unnoticed.
void beat_during(const Heartbeat& beat, const std::function<void()>& computation);

/// As `agree_on`, for a computation in the sense of `beat_during`: it may take longer than
/// `timeout`.
std::vector<std::string> agree_on_computation(Control& control, std::chrono::milliseconds timeout,
                                              const std::function<std::string()>& computation);

}  // namespace safeshuffle::comm
