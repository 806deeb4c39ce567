// Reads the headers of many objects.
#pragma once

#include <cstddef>
#include <deque>
#include <exception>
#include <future>
#include <string>
#include <vector>

#include "core/thread_pool.hpp"
#include "format/checkpoint.hpp"
#include "source/source.hpp"

namespace safeshuffle::source {

/// Reads headers in the order of `paths`, some of them ahead at the same time: storage and file
/// servers take much longer to answer than to send so little. Threads hand over several headers at
/// once where there are many, because to wake each other takes as long as to read one from the page
/// cache. Not thread-safe.
class HeaderReader {
 public:
  /// `source` must outlive it. Throws MemoryError if threads cannot be started.
  HeaderReader(const Source& source, std::vector<std::string> paths);

  /// The header of the next path; waits for no others if there are fewer than a hundred. Throws
  /// what `read_header` throws of it. To be called once for each path.
  format::RawHeader next();

 private:
  struct Outcome {
    format::RawHeader header;
    std::exception_ptr error;  // null if there is a header
  };
  using Block = std::vector<Outcome>;  // of consecutive paths

  Outcome read(const std::string& path) const noexcept;
  Block read_block(std::size_t first) const;
  void read_ahead();
  Outcome take();

  const Source& source_;
  const std::vector<std::string> paths_;
  const std::size_t per_block_;
  std::size_t submitted_ = 0;  // of paths_
  std::deque<std::future<Block>> ahead_;
  Block block_;
  std::size_t taken_ = 0;  // of block_
  core::ThreadPool pool_;
};

}  // namespace safeshuffle::source
