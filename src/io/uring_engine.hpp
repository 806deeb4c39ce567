// Reads directly with io_uring: one thread has as many reads in flight as there is memory for.
#pragma once

#include <cstddef>
#include <memory>

#include "io/engine.hpp"

namespace safeshuffle::io {

/// Up to `depth` > 0 reads are in flight, and up to `depth` + `threads` jobs have begun but not
/// ended, so that not more files are open. What is not read directly, or has no descriptor, is read
/// by `threads` > 0 threads that make blocking calls, because the page cache is copied faster by
/// several; they also open files. Throws IoError with errno where io_uring is not available;
/// MemoryError.
std::unique_ptr<Engine> make_uring_engine(std::size_t depth, unsigned threads);

}  // namespace safeshuffle::io
