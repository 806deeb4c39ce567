// A model whose files have just been written and are in memory, and copies of it by the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/posix_file.hpp"
#include "support/sample_file.hpp"

namespace safeshuffle::bench {

/// Files of equal BF16 tensors in a directory of their own, which is removed at the end.
class CachedModel {
 public:
  /// `gigabytes` (10^9 bytes) of tensors in all files together, or a little less, but one tensor
  /// of 8 MiB each. Throws std::runtime_error if the page cache does not hold them, IoError.
  CachedModel(const std::string& directory, double gigabytes, std::uint64_t files);

  std::string path() const { return directory_.path().string(); }
  std::vector<std::string> files() const;
  std::uint64_t tensor_bytes() const { return bytes_; }

 private:
  testing::ScratchDirectory directory_;
  std::uint64_t files_ = 0;
  std::uint64_t bytes_ = 0;
};

/// Moves all bytes of cached files into `slots`, two of a chunk for each thread, as a reader's
/// threads fill the ring of a GPU; nothing empties it. That is the most that a CPU with as many
/// threads can do for a load, where all memory is equally far from all cores: neither threads nor
/// slots are placed near the GPU, as those of a load are.
class CpuCopies {
 public:
  /// `slots` has 2 × threads × chunk bytes.
  CpuCopies(const std::vector<std::string>& files, std::shared_ptr<std::byte> slots,
            unsigned threads, std::uint64_t chunk);

  /// By pread(2), as loads do.
  double read_seconds() const;

  /// By memcpy from mapped files, whose pages have been touched: without the system.
  double copy_seconds() const;

 private:
  struct Mapped {
    core::PosixFile file;
    std::shared_ptr<const std::byte> memory;
    std::uint64_t bytes = 0;
  };
  struct Block {
    const Mapped* file = nullptr;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };

  template <class Move>
  double seconds(const Move& move) const;

  std::vector<Mapped> files_;
  std::vector<Block> blocks_;
  std::shared_ptr<std::byte> slots_;
  unsigned threads_;
  std::uint64_t chunk_;
};

}  // namespace safeshuffle::bench
