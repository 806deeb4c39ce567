// Calls into other libraries that may never come back.
#pragma once

#include <chrono>
#include <functional>

namespace safeshuffle::core {

/// Makes `call` on a thread of its own; whether it came back within `patience`. If it did not, the
/// thread and whatever `call` holds are left to themselves (`has_detached_work`): it must hold all
/// that it uses. What it throws is dropped. Throws MemoryError if there can be no thread.
bool returns_within(std::chrono::milliseconds patience, std::function<void()> call);

}  // namespace safeshuffle::core
