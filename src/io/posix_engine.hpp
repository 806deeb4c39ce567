// Reads with a pool of threads that make blocking calls.
#pragma once

#include <memory>

#include "io/engine.hpp"

namespace safeshuffle::io {

/// `threads` > 0. Throws MemoryError.
std::unique_ptr<Engine> make_posix_engine(unsigned threads);

}  // namespace safeshuffle::io
