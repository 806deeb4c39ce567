// Memory that something outside the program may still use.
#pragma once

#include <memory>

namespace safeshuffle::core {

/// Keeps the memory until the process ends, where leak checkers find it. Thread-safe. Throws
/// std::bad_alloc.
void keep_forever(std::shared_ptr<const void> memory);

}  // namespace safeshuffle::core
