// The files of a reader, by index; a bounded number of them open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "io/file.hpp"

namespace safeshuffle::io {

/// Opens files on first use and keeps those open that were used last: a checkpoint may have more
/// files than the process may have descriptors. Thread-safe.
class Files {
 public:
  /// `syscalls` and `journal` must outlive this.
  Files(std::vector<FileInfo> infos, bool direct, Syscalls& syscalls, Journal& journal);

  /// Throws std::out_of_range.
  const FileInfo& info(std::uint32_t file) const { return infos_.at(file); }

  /// The open file; stays open while the result is held. Throws IoError.
  std::shared_ptr<File> open(std::uint32_t file);

 private:
  struct Entry {
    std::uint32_t index = 0;
    std::shared_ptr<File> file;
  };

  const std::vector<FileInfo> infos_;
  const bool direct_;
  const std::size_t capacity_;
  Syscalls& syscalls_;
  Journal& journal_;
  std::mutex mutex_;
  std::vector<Entry> recent_;  // open files, the one used last at the end
};

}  // namespace safeshuffle::io
