#include "pipeline/cache_footprint.hpp"

#include <algorithm>
#include <utility>

#include "safeshuffle/error.hpp"

#include "core/arithmetic.hpp"
#include "core/page.hpp"
#include "core/page_cache.hpp"
#include "plan/waves.hpp"

namespace safeshuffle::pipeline {
namespace {

/// Adds a range that begins in or behind the last one.
void append(plan::Range range, Ranges& ranges) {
  if (!ranges.empty() && range.begin <= ranges.back().end) {
    ranges.back().end = std::max(ranges.back().end, range.end);
  } else {
    ranges.push_back(range);
  }
}

/// Halves the range until each part is cached or not: most files are entirely, or not at all.
bool add_cached(const source::Handle& object, plan::Range range, Ranges& found) {
  if (range.size() == 0) return true;
  const auto cached = object.cached_bytes(range.begin, range.size());
  if (!cached) return false;
  if (*cached == 0) return true;
  if (*cached == range.size()) {
    append(range, found);
    return true;
  }
  const std::uint64_t middle = range.begin + core::align_up(range.size() / 2, core::page_bytes);
  return add_cached(object, {range.begin, middle}, found) &&
         add_cached(object, {middle, range.end}, found);
}

/// Returns how many bytes are gone. An object that does not tell has none.
std::uint64_t drop_from(const source::Handle& object, plan::Range range) {
  const auto before = object.cached_bytes(range.begin, range.size());
  object.drop_cached(range.begin, range.size());
  const auto after = object.cached_bytes(range.begin, range.size());
  return before && after && *after < *before ? *before - *after : 0;
}

// The system cannot drop a page that it is still reading ahead. A reader of the page waits for it.
void await_readahead(const source::Handle& object, plan::Range range) try {
  object.stop_readahead();
  std::vector<std::byte> discarded(std::size_t{64} << 10);
  while (range.size() > 0) {
    const std::uint64_t bytes = std::min<std::uint64_t>(range.size(), discarded.size());
    const std::size_t read = object.read_some(range.begin, std::span(discarded).first(bytes));
    if (read == 0) return;
    range.begin += read;
  }
} catch (const IoError&) {  // nobody needs these bytes
}

std::uint64_t drop_all_from(const source::Handle& object, plan::Range range) {
  const std::uint64_t dropped = drop_from(object, range);
  Ranges remaining;
  if (!add_cached(object, range, remaining) || remaining.empty()) return dropped;
  for (const plan::Range& part : remaining) await_readahead(object, part);
  return dropped + drop_from(object, range);
}

Ranges merged(std::vector<plan::Range> ranges) {
  std::ranges::sort(ranges, {}, &plan::Range::begin);
  Ranges result;
  for (const plan::Range& range : ranges) append(range, result);
  return result;
}

std::map<std::uint32_t, Ranges> ranges_of(const plan::Slab& slab) {
  std::map<std::uint32_t, Ranges> by_file;
  for (const plan::FileRange& range : slab.file_ranges) {
    by_file[range.file].push_back({range.file_offset, range.file_offset + range.bytes});
  }
  for (auto& [file, ranges] : by_file) ranges = merged(std::move(ranges));
  return by_file;
}

std::uint64_t size_of(const Ranges& ranges) {
  std::uint64_t bytes = 0;
  for (const plan::Range& range : ranges) bytes += range.size();
  return bytes;
}

class DroppingHandle final : public source::Handle {
 public:
  explicit DroppingHandle(std::unique_ptr<source::Handle> handle) : handle_(std::move(handle)) {
    const std::uint64_t size = identity().size;
    if (const auto cached = cached_ranges(*handle_, size))
      not_cached_ = outside(*cached, {0, size});
    handle_->stop_readahead();  // what is still being read ahead could not be dropped
  }

  ~DroppingHandle() override {
    for (const plan::Range& range : not_cached_) {
      handle_->drop_cached(range.begin, range.size());
    }
  }
  DroppingHandle(const DroppingHandle&) = delete;
  DroppingHandle& operator=(const DroppingHandle&) = delete;

  const core::FileIdentity& identity() const noexcept override { return handle_->identity(); }

  std::size_t read_some(std::uint64_t offset, std::span<std::byte> to) const override {
    return handle_->read_some(offset, to);
  }

  bool is_local() const noexcept override { return handle_->is_local(); }

  std::optional<std::uint64_t> cached_bytes(std::uint64_t offset,
                                            std::uint64_t bytes) const override {
    return handle_->cached_bytes(offset, bytes);
  }

  std::optional<std::uint64_t> sampled_cached_bytes(std::uint64_t offset,
                                                    std::uint64_t bytes) const override {
    return handle_->sampled_cached_bytes(offset, bytes);
  }

 private:
  const std::unique_ptr<source::Handle> handle_;
  Ranges not_cached_;  // at first
};

}  // namespace

std::optional<Ranges> cached_ranges(const source::Handle& object, std::uint64_t size) {
  Ranges found;
  if (!add_cached(object, {0, size}, found)) return {};
  return found;
}

Ranges outside(const Ranges& ranges, plan::Range range) {
  Ranges result;
  auto next = std::ranges::upper_bound(ranges, range.begin, {}, &plan::Range::end);
  for (; next != ranges.end() && next->begin < range.end; ++next) {
    if (range.begin < next->begin) result.push_back({range.begin, next->begin});
    range.begin = next->end;
  }
  if (range.begin < range.end) result.push_back(range);
  return result;
}

std::uint64_t overlap(const Ranges& a, const Ranges& b) {
  std::uint64_t bytes = 0;
  for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end();) {
    const std::uint64_t begin = std::max(i->begin, j->begin);
    const std::uint64_t end = std::min(i->end, j->end);
    if (begin < end) bytes += end - begin;
    i->end < j->end ? ++i : ++j;
  }
  return bytes;
}

CachedBefore::CachedBefore(const source::Source& source, std::span<const FileInfo> files,
                           std::span<const std::uint32_t> chosen, const comm::Heartbeat& beat)
    : source_(source), files_(files) {
  for (const std::uint32_t file : chosen) {
    cached_[file] = now(file);
    beat();
  }
}

const Ranges* CachedBefore::of(std::uint32_t file) const {
  const auto found = cached_.find(file);
  return found != cached_.end() && found->second ? &*found->second : nullptr;
}

std::unique_ptr<source::Handle> CachedBefore::open(std::uint32_t file) const try {
  return source_.open(files_[file].path, source::Access::cached);
} catch (const IoError&) {
  return nullptr;
}

std::optional<Ranges> CachedBefore::now(std::uint32_t file) const {
  const auto handle = open(file);
  return handle ? cached_ranges(*handle, files_[file].size) : std::nullopt;
}

std::uint64_t CachedBefore::drop_gained(std::uint32_t file, plan::Range range,
                                        Drop drop_part) const {
  const Ranges* const before = of(file);
  if (before == nullptr) return 0;
  const Ranges gained = outside(*before, range);
  const auto handle = gained.empty() ? nullptr : open(file);
  std::uint64_t bytes = 0;
  for (const plan::Range& part : gained) {
    if (handle) bytes += drop_part(*handle, part);
  }
  return bytes;
}

std::uint64_t CachedBefore::drop(std::uint32_t file, plan::Range range) const {
  return drop_gained(file, range, drop_from);
}

std::uint64_t CachedBefore::drop_all(const comm::Heartbeat& beat) const {
  std::uint64_t bytes = 0;
  for (const auto& [file, cached] : cached_) {
    bytes += drop_gained(file, {0, files_[file].size}, drop_all_from);
    beat();
  }
  return bytes;
}

CacheFootprint::CacheFootprint(const source::Source& source, const plan::Schedule& schedule,
                               std::uint32_t rank, const comm::Heartbeat& beat)
    : schedule_(schedule),
      rank_(rank),
      before_(source, schedule.catalog.files(), schedule.ranks[rank].files, beat) {
  plan::Slab slab;
  for (std::uint32_t wave = 0; wave < schedule_.waves; ++wave) {
    plan::slab_at(schedule_, wave, rank_, slab);
    for (auto& [file, ranges] : ranges_of(slab)) {
      reads_[file].insert(reads_[file].end(), ranges.begin(), ranges.end());
    }
    beat();
  }
  for (auto& [file, ranges] : reads_) ranges = merged(std::move(ranges));
}

void CacheFootprint::drop(std::uint32_t wave) {
  plan::Slab slab;
  plan::slab_at(schedule_, wave, rank_, slab);
  for (const auto& [file, ranges] : ranges_of(slab)) {
    for (const plan::Range& range : ranges) drop(file, range);
  }
}

// From the beginning of the block in which the range begins, as far as this rank has read what is
// there: the block could not be dropped before.
void CacheFootprint::drop(std::uint32_t file, plan::Range range) {
  plan::Range& last = dropped_[file];
  const bool goes_on = last.begin <= range.begin && range.begin <= last.end;
  last = goes_on ? plan::Range{last.begin, std::max(last.end, range.end)} : range;
  const std::uint64_t block = core::align_down(range.begin, core::most_cached_block);
  dropped_bytes_ += before_.drop(file, {std::max(last.begin, block), range.end});
}

void CacheFootprint::drop_all(const comm::Heartbeat& beat) {
  dropped_bytes_ += before_.drop_all(beat);
}

CacheUse CacheFootprint::use(const comm::Heartbeat& beat) const {
  CacheUse use{.dropped = dropped_bytes_};
  for (const auto& [file, ranges] : reads_) {
    const Ranges* const before = before_.of(file);
    const auto after = before_.now(file);
    use.planned += size_of(ranges);
    if (before == nullptr || !after) {
      use.unknown += size_of(ranges);
    } else {
      use.before += overlap(*before, ranges);
      use.after += overlap(*after, ranges);
    }
    beat();
  }
  return use;
}

std::unique_ptr<source::Handle> DroppingSource::open(const std::string& path,
                                                     source::Access access) const {
  auto handle = source_.open(path, access);
  if (access == source::Access::direct) return handle;
  return std::make_unique<DroppingHandle>(std::move(handle));
}

}  // namespace safeshuffle::pipeline
