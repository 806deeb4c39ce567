// Reads directly with io_uring: one thread has as many reads in flight as there is memory for.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "io/engine.hpp"

namespace safeshuffle::io {

/// Up to `depth` > 0 reads are in flight, and up to `depth` + `threads` jobs have begun but not
/// ended, so that not more files are open. What is not read directly, or has no descriptor, is read
/// by `threads` > 0 threads that make blocking calls, because the page cache is copied faster by
/// several; they also open files. `memory`, which must outlive the engine: what most reads are made
/// into. It is registered with the kernel if that permits it; otherwise the same reads are made
/// without, which is not reported: they take the same path, only some CPU time more. Throws IoError
/// with errno where io_uring is not available; MemoryError.
std::unique_ptr<Engine> make_uring_engine(std::size_t depth, unsigned threads,
                                          std::span<const std::span<std::byte>> memory = {});

}  // namespace safeshuffle::io
