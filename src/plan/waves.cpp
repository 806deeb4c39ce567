#include "plan/waves.hpp"

#include <algorithm>
#include <utility>

#include "core/arithmetic.hpp"

namespace safeshuffle::plan {
namespace {

// Appends units to slabs, one after the other.
class SlabFiller {
 public:
  SlabFiller(const Catalog& catalog, std::uint64_t window) : catalog_(catalog), window_(window) {}

  void add(const ReadUnit& unit) {
    const bool chunk = unit.bytes() != catalog_.tensors()[unit.tensor].bytes;
    if (chunk || filled_ + unit.bytes() > window_) finish();
    append(unit);
    if (chunk) finish();
  }

  std::vector<Slab> take() {
    finish();
    return std::move(slabs_);
  }

 private:
  void finish() {
    if (slab_.pieces.empty()) return;
    slabs_.push_back(std::exchange(slab_, {}));
    filled_ = 0;
    cursor_ = 0;
  }

  void append(const ReadUnit& unit) {
    const TensorInfo& tensor = catalog_.tensors()[unit.tensor];
    const std::uint64_t file_offset = tensor.file_offset + unit.begin;
    if (!continues(tensor.file, file_offset)) {
      cursor_ = core::align_up(cursor_, page_bytes) + file_offset % page_bytes;
      slab_.file_ranges.push_back({tensor.file, file_offset, 0, cursor_});
    }
    slab_.file_ranges.back().bytes += unit.bytes();
    slab_.pieces.push_back({unit.tensor, unit.begin, unit.end, cursor_});
    cursor_ += unit.bytes();
    filled_ += unit.bytes();
  }

  bool continues(std::uint32_t file, std::uint64_t file_offset) const {
    if (slab_.file_ranges.empty()) return false;
    const FileRange& last = slab_.file_ranges.back();
    return last.file == file && last.file_offset + last.bytes == file_offset;
  }

  const Catalog& catalog_;
  std::uint64_t window_;
  std::vector<Slab> slabs_;
  Slab slab_;
  std::uint64_t filled_ = 0;  // tensor bytes in the slab
  std::uint64_t cursor_ = 0;  // end of the last piece in the slab
};

}  // namespace

std::vector<Slab> fill_slabs(const Catalog& catalog, const std::vector<ReadUnit>& units,
                             std::uint64_t window) {
  SlabFiller filler(catalog, window);
  for (const ReadUnit& unit : units) filler.add(unit);
  return filler.take();
}

std::uint32_t interleave(std::vector<std::vector<Slab>> rank_slabs, std::vector<Slab>& slabs) {
  std::size_t waves = 0;
  for (const auto& mine : rank_slabs) waves = std::max(waves, mine.size());
  slabs.resize(waves * rank_slabs.size());
  for (std::size_t rank = 0; rank < rank_slabs.size(); ++rank) {
    for (std::size_t wave = 0; wave < rank_slabs[rank].size(); ++wave) {
      slabs[wave * rank_slabs.size() + rank] = std::move(rank_slabs[rank][wave]);
    }
  }
  return static_cast<std::uint32_t>(waves);
}

std::uint64_t slab_bytes(const Slab& slab) {
  if (slab.file_ranges.empty()) return 0;
  const FileRange& last = slab.file_ranges.back();
  return core::align_up(last.slab_offset + last.bytes, page_bytes);
}

}  // namespace safeshuffle::plan
