#include "probe/sample.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/arithmetic.hpp"
#include "core/machine.hpp"
#include "core/page.hpp"
#include "core/page_cache.hpp"

namespace safeshuffle::probing {
namespace {

/// Pages of a sample that may be other than they should: others use the files as well, such as
/// those who read their headers.
constexpr std::uint64_t tolerated_part = 100;

constexpr std::size_t most_files = 64;  // of which a process may keep descriptors

std::string share_text(std::uint64_t part, std::uint64_t whole) {
  return std::to_string(part) + " of " + std::to_string(whole) + " bytes";
}

constexpr const char* unknown_residency =
    "this process is not told what is in the page cache, because it neither owns the files nor may "
    "write to them";

std::string why_not_cold(const std::string& path, std::uint64_t cached, std::uint64_t bytes) {
  const std::string type = core::mount_of(path).type;
  const std::string reason = type == "tmpfs" || type == "ramfs"
                                 ? ": " + type + " keeps its files in memory"
                                 : "; another program has them mapped, or they are being written";
  return share_text(cached, bytes) + " stay in the page cache" + reason;
}

}  // namespace

std::vector<SampleRange> sample_ranges(std::span<const FileInfo> files, std::uint64_t begin,
                                       std::uint64_t bytes) {
  std::vector<SampleRange> ranges;
  for (std::uint32_t file = 0; file < files.size() && bytes != 0; ++file) {
    const std::uint64_t size = files[file].size;
    if (begin >= size) {
      begin -= size;
      continue;
    }
    const std::uint64_t offset = core::align_down(begin, core::page_bytes);
    ranges.push_back({file, offset, std::min(bytes, size - offset)});
    bytes -= ranges.back().bytes;
    begin = 0;
    if (ranges.size() == most_files) break;
  }
  return ranges;
}

Sample::Sample(const source::Source& source, std::span<const FileInfo> files,
               std::vector<SampleRange> ranges)
    : ranges_(std::move(ranges)) {
  for (const SampleRange& range : ranges_) {
    paths_.push_back(files[range.file].path);
    handles_.push_back(source.open(paths_.back(), source::Access::cached));
  }
}

std::uint64_t Sample::bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const SampleRange& range : ranges_) sum += range.bytes;
  return sum;
}

void Sample::shrink(std::uint64_t bytes) {
  std::vector<SampleRange> kept;
  for (const SampleRange& range : ranges_) {
    if (bytes == 0) break;
    kept.push_back({range.file, range.offset, std::min(range.bytes, bytes)});
    bytes -= kept.back().bytes;
  }
  ranges_ = std::move(kept);
}

std::optional<std::uint64_t> Sample::cached_bytes() const {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    const auto cached = handles_[i]->cached_bytes(ranges_[i].offset, ranges_[i].bytes);
    if (!cached) return {};
    sum += *cached;
  }
  return sum;
}

std::string Sample::make_cold() const {
  if (has_holes()) return "the files have holes, which are not read from storage";
  // The system writes dirty pages when it is asked to drop them, and drops them when asked again.
  constexpr int most_attempts = 400;
  constexpr int patience = 8;  // attempts that drop nothing
  constexpr std::chrono::milliseconds between{25};
  std::uint64_t cached = bytes();
  for (int attempt = 0, futile = 0; attempt < most_attempts && futile < patience; ++attempt) {
    drop();
    const auto left = cached_bytes();
    if (!left) return unknown_residency;
    if (*left <= bytes() / tolerated_part) return {};
    futile = *left < cached ? 0 : futile + 1;
    cached = *left;
    std::this_thread::sleep_for(between);
  }
  return why_not_cold(paths_.front(), cached, bytes());
}

bool Sample::has_holes() const {
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    if (handles_[i]->has_hole(ranges_[i].offset, ranges_[i].bytes)) return true;
  }
  return false;
}

void Sample::drop() const {
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    const std::uint64_t begin = core::align_down(ranges_[i].offset, core::most_cached_block);
    const std::uint64_t end =
        core::align_up(ranges_[i].offset + ranges_[i].bytes, core::most_cached_block);
    handles_[i]->drop_cached(begin, end - begin);
  }
}

std::string Sample::make_warm() const {
  if (has_holes()) return "the files have holes, which the page cache need not hold";
  if (cached_bytes() == bytes()) return {};
  std::vector<std::byte> buffer(std::uint64_t{1} << 20);
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    for (std::uint64_t done = 0; done < ranges_[i].bytes;) {
      const std::uint64_t part = std::min<std::uint64_t>(buffer.size(), ranges_[i].bytes - done);
      source::read(*handles_[i], paths_[i], ranges_[i].offset + done,
                   std::span(buffer).first(part));
      done += part;
    }
  }
  const auto cached = cached_bytes();
  if (!cached) return unknown_residency;
  if (*cached + bytes() / tolerated_part >= bytes()) return {};
  return "the page cache keeps only " + share_text(*cached, bytes());
}

}  // namespace safeshuffle::probing
