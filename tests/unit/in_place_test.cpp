// What is read in place, into the arena.
#include "plan/in_place.hpp"

#include <cstdint>
#include <vector>

#include "core/pack_item.hpp"
#include "support/catch.hpp"

using namespace safeshuffle;
using plan::FileRange;
using plan::InPlaceBlock;
using plan::InPlaceRule;
using plan::PlacedRange;

namespace {

constexpr InPlaceRule any_length{.smallest = 1, .congruent = false};

PackItem block(std::uint64_t source, std::uint64_t destination, std::uint64_t bytes) {
  return {.source = source,
          .destination = destination,
          .rows = 1,
          .row_bytes = bytes,
          .source_stride = bytes,
          .destination_stride = bytes};
}

// The blocks that are taken of such items, as {slab_offset, arena_offset, bytes}.
std::vector<std::vector<std::uint64_t>> taken(plan::Outgoing outgoing, const InPlaceRule& rule) {
  const std::size_t items = outgoing.items.size();
  std::vector<std::vector<std::uint64_t>> numbers;
  for (const InPlaceBlock& block : take_in_place(outgoing, rule)) {
    numbers.push_back({block.slab_offset, block.arena_offset, block.bytes});
  }
  CHECK((outgoing.items.size() < items) == !numbers.empty());
  return numbers;
}

using Blocks = std::vector<std::vector<std::uint64_t>>;

}  // namespace

TEST_CASE("blocks for the arena are read in place, joined where both memories allow",
          "[in place]") {
  const plan::Outgoing outgoing{.items = {block(300, 1300, 50), block(100, 1000, 100),
                                          block(200, 1100, 100), block(350, 2000, 1)},
                                .sends = {}};
  CHECK(taken(outgoing, any_length) == Blocks{{100, 1000, 200}, {300, 1300, 50}, {350, 2000, 1}});
  CHECK(taken(outgoing, {.smallest = 200, .congruent = false}) == Blocks{{100, 1000, 200}});
  CHECK(taken(outgoing, {.smallest = 201, .congruent = false}).empty());
}

TEST_CASE("rows that lie without gaps in both memories are a block, others are not", "[in place]") {
  PackItem rows = block(0, 0, 10);
  rows.rows = 3;
  CHECK(taken({.items = {rows}, .sends = {}}, any_length) == Blocks{{0, 0, 30}});
  rows.source_stride = 11;
  CHECK(taken({.items = {rows}, .sends = {}}, any_length).empty());
  rows.source_stride = 10;
  rows.destination_stride = 11;
  CHECK(taken({.items = {rows}, .sends = {}}, any_length).empty());
}

TEST_CASE("what is converted, or not for the arena, is not read in place", "[in place]") {
  PackItem converted = block(0, 0, 10);
  converted.from = DType::BF16;
  converted.to = DType::F16;
  PackItem sent = block(16, 0, 10);
  sent.target = PackTarget::pack_buffer;
  CHECK(taken({.items = {converted, sent}, .sends = {}}, any_length).empty());
}

TEST_CASE("what goes to several places is not read in place", "[in place]") {
  const Blocks rest{{40, 400, 10}};
  CHECK(taken({.items = {block(0, 0, 30), block(0, 100, 30), block(40, 400, 10)}, .sends = {}},
              any_length) == rest);
  // The long block overlaps both others.
  CHECK(taken({.items = {block(0, 0, 30), block(5, 100, 5), block(20, 200, 15), block(40, 400, 10)},
               .sends = {}},
              any_length) == rest);
}

TEST_CASE("what is used otherwise, too, is not read in place", "[in place]") {
  PackItem column = block(140, 0, 5);  // 140 to 145 and 190 to 195
  column.rows = 2;
  column.source_stride = 50;
  column.target = PackTarget::pack_buffer;
  const std::vector<PackItem> items{block(100, 1000, 40), block(150, 2000, 10), block(195, 0, 100),
                                    column};
  CHECK(taken({.items = items, .sends = {}}, any_length) == Blocks{{100, 1000, 40}, {195, 0, 100}});
  const plan::Run run{1, plan::RunMemory::slab, 294, 6};
  CHECK(taken({.items = items, .sends = {run}}, any_length) == Blocks{{100, 1000, 40}});
  const plan::Run packed{1, plan::RunMemory::pack_buffer, 294, 6};
  CHECK(taken({.items = items, .sends = {packed}}, any_length).size() == 2);
}

TEST_CASE("only congruent blocks, where direct reads need that", "[in place]") {
  const plan::Outgoing outgoing{.items = {block(4096 + 5, 5, 100), block(5000, 4999, 100)},
                                .sends = {}};
  CHECK(taken(outgoing, {.smallest = 1, .congruent = true}) == Blocks{{4101, 5, 100}});
}

TEST_CASE("ranges are cut where blocks begin and end", "[in place]") {
  const std::vector<FileRange> ranges{{7, 1000, 500, 0}, {8, 0, 300, 600}};
  const std::vector<InPlaceBlock> blocks{{100, 9000, 50}, {450, 20, 20}, {600, 5000, 300}};
  std::vector<std::vector<std::uint64_t>> placed;
  for (const auto& [range, in_arena] : place_ranges(ranges, blocks)) {
    placed.push_back({range.file, range.file_offset, range.bytes, range.slab_offset, in_arena});
  }
  CHECK(placed == Blocks{{7, 1000, 100, 0, 0},
                         {7, 1100, 50, 9000, 1},
                         {7, 1150, 300, 150, 0},
                         {7, 1450, 20, 20, 1},
                         {7, 1470, 30, 470, 0},
                         {8, 0, 300, 5000, 1}});
}
