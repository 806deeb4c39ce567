// Calls into other libraries that may never return.
#pragma once

#include <chrono>
#include <functional>

namespace safeshuffle::core {

/// Runs `call` on a thread of its own; returns whether it returned within `patience`. If not, the
/// thread and everything `call` holds are left behind (`has_detached_work`), so `call` must own
/// everything it uses. Its exceptions are dropped. Throws MemoryError if no thread can be started.
bool returns_within(std::chrono::milliseconds patience, std::function<void()> call);

}  // namespace safeshuffle::core
