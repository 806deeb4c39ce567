// A slab of which parts were left in their files.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/device.hpp"
#include "io/reader.hpp"
#include "source/source.hpp"

namespace safeshuffle::pipeline {

class FileSlab final : public device::PackSource {
 public:
  /// `left`: as BatchStatus has it; its destinations are in the slab. What is not left is there.
  FileSlab(const std::byte* slab, std::vector<io::LeftRange> left);

  void read(std::uint64_t offset, std::span<std::byte> to) const override;
  const std::byte* view(std::uint64_t offset, std::uint64_t bytes) const override;

  /// Throws IoError if a file is no longer the one described, after the last `read`.
  void check_unchanged(const source::Source& source) const;

  /// Tells the reader which part of what was left nobody has asked for, such as gaps between rows.
  void note_unread() const;

 private:
  using Ranges = std::vector<io::LeftRange>;

  void count(Ranges::const_iterator range, std::uint64_t bytes) const;

  const std::byte* slab_;
  Ranges left_;
  mutable std::vector<std::atomic<std::uint64_t>> asked_;  // bytes, by range that was left
};

}  // namespace safeshuffle::pipeline
