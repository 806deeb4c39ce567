// Reads with a pool of threads that make blocking calls.
#pragma once

#include <memory>
#include <vector>

#include "io/reader.hpp"
#include "source/source.hpp"

namespace safeshuffle::io {

/// `source` and `staging` must outlive the reader. Throws ConfigError if an option is out of
/// range.
std::unique_ptr<Reader> make_posix_reader(const ReaderOptions& options,
                                          const source::Source& source, std::vector<FileInfo> files,
                                          device::Staging& staging);

}  // namespace safeshuffle::io
