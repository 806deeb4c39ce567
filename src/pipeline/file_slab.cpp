#include "pipeline/file_slab.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace safeshuffle::pipeline {
namespace {

const std::byte* end_of(const io::LeftRange& range) {
  return range.destination + range.bytes;
}

}  // namespace

FileSlab::FileSlab(const std::byte* slab, std::vector<io::LeftRange> left)
    : slab_(slab), left_(std::move(left)), asked_(left_.size()) {}

const std::byte* FileSlab::view(std::uint64_t offset, std::uint64_t bytes) const {
  const std::byte* const at = slab_ + offset;
  const std::byte* const end = at + bytes;
  const auto range = std::ranges::upper_bound(left_, at, {}, end_of);
  return range == left_.end() || end <= range->destination ? at : nullptr;
}

void FileSlab::read(std::uint64_t offset, std::span<std::byte> to) const {
  const std::byte* at = slab_ + offset;
  auto range = std::ranges::upper_bound(left_, at, {}, end_of);
  while (!to.empty()) {
    const bool left = range != left_.end() && range->destination <= at;
    const std::byte* const end = left                   ? end_of(*range)
                                 : range == left_.end() ? at + to.size()
                                                        : range->destination;
    const auto bytes = std::min(to.size(), static_cast<std::size_t>(end - at));
    if (left) {
      io::read(*range, static_cast<std::uint64_t>(at - range->destination), to.first(bytes));
      count(range, bytes);
      ++range;
    } else {
      std::copy_n(at, bytes, to.begin());
    }
    to = to.subspan(bytes);
    at += bytes;
  }
}

void FileSlab::count(Ranges::const_iterator range, std::uint64_t bytes) const {
  asked_[static_cast<std::size_t>(range - left_.begin())].fetch_add(bytes,
                                                                    std::memory_order_relaxed);
}

void FileSlab::note_unread() const {
  for (std::size_t i = 0; i < left_.size(); ++i) {
    const std::uint64_t asked = asked_[i].load(std::memory_order_relaxed);
    if (asked < left_[i].bytes) io::note_unread(left_[i], left_[i].bytes - asked);
  }
}

void FileSlab::check_unchanged(const source::Source& source) const {
  std::optional<std::uint32_t> last;
  for (const io::LeftRange& range : left_) {
    if (range.file == last) continue;
    last = range.file;
    io::check_unchanged(range, source);
  }
}

}  // namespace safeshuffle::pipeline
