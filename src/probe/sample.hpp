// The part of a checkpoint's files that one rank reads to measure, and what the page cache has of
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "safeshuffle/metadata.hpp"

#include "source/source.hpp"

namespace safeshuffle::probing {

/// Consecutive bytes of one file.
struct SampleRange {
  std::uint32_t file = 0;  ///< index
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// The bytes from `begin` on, up to `bytes`, of all files one after the other; in at most 64 files.
/// Ranges begin at multiples of a page. Pure.
std::vector<SampleRange> sample_ranges(std::span<const FileInfo> files, std::uint64_t begin,
                                       std::uint64_t bytes);

/// Used by one thread.
class Sample {
 public:
  /// Opens the files. Throws IoError.
  Sample(const source::Source& source, std::span<const FileInfo> files,
         std::vector<SampleRange> ranges);

  const std::vector<SampleRange>& ranges() const noexcept { return ranges_; }
  std::uint64_t bytes() const noexcept;

  /// Keeps only the first `bytes`.
  void shrink(std::uint64_t bytes);

  /// Of `bytes()`; empty if unknown.
  std::optional<std::uint64_t> cached_bytes() const;

  /// Drops it from the page cache. Returns why that is not possible, or not known to be done.
  std::string make_cold() const;

  /// Reads it into the page cache. Returns why that is not possible, or not known to be done.
  /// Throws IoError.
  std::string make_warm() const;

 private:
  bool has_holes() const;
  void drop() const;

  std::vector<std::string> paths_;                        // by range
  std::vector<std::unique_ptr<source::Handle>> handles_;  // by range
  std::vector<SampleRange> ranges_;
};

}  // namespace safeshuffle::probing
