// The files of a reader, by index; a bounded number of them open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <vector>

#include "io/file.hpp"

namespace safeshuffle::io {

/// How many files may be open for reads in flight, besides those that `Files` keeps open. A file
/// takes two descriptors, and as many files as are kept open may also be open for what each of
/// three batches has left in them: altogether, three quarters of the descriptors that the process
/// may have.
std::size_t files_in_flight();

/// Opens files on first use and keeps the most recently used ones open: a checkpoint may have more
/// files than the process may have descriptors. Thread-safe.
class Files {
 public:
  /// For the arguments, see File. All but the first two must outlive this.
  Files(std::vector<FileInfo> infos, const ReaderOptions& options, const source::Source& source,
        PathRecorder& recorder, device::DeviceReads* device);

  /// Closes all files; from now on, they are these. None may be in use.
  void start_over(std::vector<FileInfo> infos);

  PathRecorder& recorder() const noexcept { return recorder_; }

  /// How many are kept open.
  std::size_t capacity() const noexcept { return capacity_; }

  /// Throws std::out_of_range.
  const FileInfo& info(std::uint32_t file) const { return infos_.at(file); }

  /// The open file; stays open while the result is held. Throws IoError: the same one to all
  /// callers if the file could not be opened. Opening one file does not delay access to another.
  std::shared_ptr<File> open(std::uint32_t file);

 private:
  /// A file that the first caller opens, while others wait for it.
  using SharedFile = std::shared_future<std::shared_ptr<File>>;

  struct Entry {
    std::uint32_t index = 0;
    SharedFile file;
  };

  SharedFile find(std::uint32_t file);

  std::vector<FileInfo> infos_;
  const DirectIo mode_;
  const bool read_ahead_;
  const std::size_t capacity_;
  const source::Source& source_;
  PathRecorder& recorder_;
  device::DeviceReads* const device_;
  std::mutex mutex_;
  std::vector<Entry> recent_;  // most recently used last
};

}  // namespace safeshuffle::io
