// Reads the headers of many objects.
#pragma once

#include <cstddef>
#include <deque>
#include <future>
#include <string>
#include <vector>

#include "core/thread_pool.hpp"
#include "format/checkpoint.hpp"
#include "source/source.hpp"

namespace safeshuffle::source {

/// Reads headers in the order of `paths`, some of them ahead at the same time: storage and file
/// servers take much longer to answer than to send so little. Not thread-safe.
class HeaderReader {
 public:
  /// `source` must outlive it. Throws MemoryError if threads cannot be started.
  HeaderReader(const Source& source, std::vector<std::string> paths);

  /// The header of the next path; waits for no others. Throws what `read_header` throws of it. To
  /// be called once for each path.
  format::RawHeader next();

 private:
  void read_ahead();

  const Source& source_;
  const std::vector<std::string> paths_;
  std::size_t submitted_ = 0;  // of paths_
  std::deque<std::future<format::RawHeader>> ahead_;
  core::ThreadPool pool_;
};

}  // namespace safeshuffle::source
