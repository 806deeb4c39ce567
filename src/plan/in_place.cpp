#include "plan/in_place.hpp"

#include <algorithm>
#include <cstddef>

#include "core/page.hpp"

namespace safeshuffle::plan {
namespace {

// Of the slab.
struct Used {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

Used used_by(const PackItem& item) {
  return {item.source, item.source + (item.rows - 1) * item.source_stride + item.row_bytes};
}

bool goes_to_arena(const PackItem& item) {
  return item.target == PackTarget::arena && is_one_block(item);
}

bool continues(const InPlaceBlock& block, const PackItem& item) {
  return item.source == block.slab_offset + block.bytes &&
         item.destination == block.arena_offset + block.bytes;
}

// `items` ascend in the slab.
std::vector<InPlaceBlock> join(std::span<const PackItem> items) {
  std::vector<InPlaceBlock> blocks;
  for (const PackItem& item : items) {
    const std::uint64_t bytes = item.rows * item.row_bytes;
    if (!blocks.empty() && continues(blocks.back(), item)) {
      blocks.back().bytes += bytes;
    } else {
      blocks.push_back({item.source, item.destination, bytes});
    }
  }
  return blocks;
}

// Of ascending blocks, what goes to several places.
std::vector<Used> shared_by(std::span<const InPlaceBlock> blocks) {
  std::vector<Used> shared;
  std::uint64_t reach = 0;
  for (const InPlaceBlock& block : blocks) {
    const std::uint64_t end = block.slab_offset + block.bytes;
    if (block.slab_offset < reach) shared.push_back({block.slab_offset, std::min(reach, end)});
    reach = std::max(reach, end);
  }
  return shared;
}

// What is used of the slab beside such blocks, or by several: ascending, and no two overlap.
std::vector<Used> other_uses(const Outgoing& outgoing, std::size_t first_item,
                             std::span<const InPlaceBlock> blocks) {
  std::vector<Used> uses = shared_by(blocks);
  for (std::size_t i = first_item; i < outgoing.items.size(); ++i) {
    uses.push_back(used_by(outgoing.items[i]));
  }
  for (const Run& run : outgoing.sends) {
    if (run.memory == RunMemory::slab) uses.push_back({run.offset, run.offset + run.bytes});
  }
  std::ranges::sort(uses, {}, &Used::begin);
  std::vector<Used> joined;
  for (const Used& use : uses) {
    if (joined.empty() || use.begin > joined.back().end) {
      joined.push_back(use);
    } else {
      joined.back().end = std::max(joined.back().end, use.end);
    }
  }
  return joined;
}

bool is_used(const InPlaceBlock& block, std::span<const Used> uses) {
  const auto use = std::ranges::upper_bound(uses, block.slab_offset, {}, &Used::end);
  return use != uses.end() && use->begin < block.slab_offset + block.bytes;
}

// Offsets in slabs are congruent to those in files.
bool allows(const InPlaceRule& rule, const InPlaceBlock& block) {
  return block.bytes >= rule.smallest &&
         (!rule.congruent ||
          block.slab_offset % core::page_bytes == block.arena_offset % core::page_bytes);
}

// The last block that begins at or before an offset of the slab, if that lies in it.
const InPlaceBlock* block_at(std::span<const InPlaceBlock> blocks, std::uint64_t offset) {
  auto block = std::ranges::upper_bound(blocks, offset, {}, &InPlaceBlock::slab_offset);
  if (block == blocks.begin()) return nullptr;
  --block;
  return offset < block->slab_offset + block->bytes ? &*block : nullptr;
}

std::uint64_t next_begin(std::span<const InPlaceBlock> blocks, std::uint64_t offset) {
  const auto block = std::ranges::upper_bound(blocks, offset, {}, &InPlaceBlock::slab_offset);
  return block == blocks.end() ? ~std::uint64_t{0} : block->slab_offset;
}

}  // namespace

std::vector<InPlaceBlock> take_in_place(Outgoing& outgoing, const InPlaceRule& rule) {
  std::vector<PackItem>& items = outgoing.items;
  // Not that of std::ranges, which Clang 14 does not compile with GCC's library.
  const auto others = std::stable_partition(items.begin(), items.end(), goes_to_arena);
  const std::span<PackItem> plain(items.begin(), others);
  std::ranges::sort(plain, {}, &PackItem::source);
  std::vector<InPlaceBlock> blocks = join(plain);
  const std::vector<Used> uses = other_uses(outgoing, plain.size(), blocks);
  std::erase_if(blocks, [&](const InPlaceBlock& block) {
    return !allows(rule, block) || is_used(block, uses);
  });
  const auto taken = [&](const PackItem& item) {
    return goes_to_arena(item) && block_at(blocks, item.source) != nullptr;
  };
  std::erase_if(items, taken);
  return blocks;
}

std::vector<PlacedRange> place_ranges(std::span<const FileRange> ranges,
                                      std::span<const InPlaceBlock> blocks) {
  std::vector<PlacedRange> placed;
  for (FileRange rest : ranges) {
    while (rest.bytes != 0) {
      const InPlaceBlock* const block = block_at(blocks, rest.slab_offset);
      const std::uint64_t end = block != nullptr ? block->slab_offset + block->bytes
                                                 : next_begin(blocks, rest.slab_offset);
      FileRange part = rest;
      part.bytes = std::min(rest.bytes, end - rest.slab_offset);
      if (block != nullptr) part.slab_offset += block->arena_offset - block->slab_offset;
      placed.push_back({part, block != nullptr});
      rest.file_offset += part.bytes;
      rest.slab_offset += part.bytes;
      rest.bytes -= part.bytes;
    }
  }
  return placed;
}

}  // namespace safeshuffle::plan
