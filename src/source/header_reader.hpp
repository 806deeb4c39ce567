// Reads the headers of many objects.
#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <vector>

#include "core/thread_pool.hpp"
#include "format/checkpoint.hpp"
#include "source/source.hpp"

namespace safeshuffle::source {

/// Reads headers in the order of `paths`, some of them ahead at the same time: storage and file
/// servers take much longer to answer than to send so little.
class HeaderReader {
 public:
  /// Throws MemoryError if threads cannot be started.
  HeaderReader(const Source& source, std::vector<std::string> paths);

  /// The header of the next path. Throws what `read_header` throws of it.
  format::RawHeader next();

 private:
  struct Outcome {
    format::RawHeader header;
    std::exception_ptr error;
  };

  Outcome read(const std::string& path) const;
  void read_ahead();

  const Source& source_;
  const std::vector<std::string> paths_;
  core::ThreadPool pool_;
  std::size_t next_ = 0;         // of paths_
  std::vector<Outcome> ahead_;   // the last ones of which have not been returned yet
  std::size_t ahead_begin_ = 0;  // of paths_
};

}  // namespace safeshuffle::source
