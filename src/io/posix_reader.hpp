// Reads with a pool of threads that call pread.
#pragma once

#include <memory>
#include <vector>

#include "io/reader.hpp"
#include "io/syscalls.hpp"

namespace safeshuffle::io {

/// `staging` and `syscalls` must outlive the reader. Throws ConfigError if an option is out of
/// range.
std::unique_ptr<Reader> make_posix_reader(const ReaderOptions& options, std::vector<FileInfo> files,
                                          device::Staging& staging,
                                          Syscalls& syscalls = system_calls());

}  // namespace safeshuffle::io
