// The pack kernel's work, thread by thread on the CPU, against packing on the host. The slab lies
// next to pages that must not be touched, so that a load too far shows.
#include <algorithm>
#include <numeric>
#include <vector>

#include "device/cuda/pack_table.hpp"
#include "device/cuda/pack_tile.hpp"
#include "support/catch.hpp"
#include "support/guarded_memory.hpp"
#include "support/pack_cases.hpp"

using namespace safeshuffle;
using device::make_pack_entries;
using device::PackBuffers;
using device::PackEntry;
using testing::ConvertPair;
using testing::GuardedMemory;
using testing::PackTable;
using testing::PackTargets;

namespace {

/// In which order threads run: one that writes what is not its own is undone by its neighbour in
/// one of them, but not in the other.
enum class ThreadOrder { ascending, descending };

std::uint64_t nth(std::uint64_t i, std::uint64_t count, ThreadOrder order) {
  return order == ThreadOrder::ascending ? i : count - 1 - i;
}

/// Fewer blocks than there are tiles.
unsigned grid(std::uint64_t tiles) {
  return static_cast<unsigned>(tiles / 2 + 1);
}

void run_kernel(std::span<const PackItem> items, const PackBuffers& buffers, ThreadOrder order) {
  std::vector<PackEntry> entries(items.size());
  const std::uint64_t tiles = make_pack_entries(items, buffers, entries);
  const auto count = static_cast<std::uint32_t>(entries.size());
  for (std::uint64_t i = 0; i < grid(tiles) * device::pack_threads; ++i) {
    const std::uint64_t thread = nth(i, grid(tiles) * device::pack_threads, order);
    device::pack_tiles(entries.data(), count, tiles,
                       static_cast<unsigned>(thread / device::pack_threads), grid(tiles),
                       static_cast<unsigned>(thread % device::pack_threads));
  }
}

PackTargets packed_by_kernel(const PackTable& table, const std::byte* slab, ThreadOrder order) {
  PackTargets targets = table.blank();
  run_kernel(table.items(), {slab, targets.arena.data(), targets.send.data()}, order);
  return targets;
}

void check(const PackTable& table) {
  const GuardedMemory slab(table.slab(), GuardedMemory::Place::back);
  const PackTargets expected = table.packed();
  CHECK(difference(packed_by_kernel(table, slab.data(), ThreadOrder::ascending), expected) == "");
  CHECK(difference(packed_by_kernel(table, slab.data(), ThreadOrder::descending), expected) == "");
}

PackItem rows(ConvertPair types, std::uint64_t count, std::uint64_t elements) {
  PackItem item{.destination = elements % 16,
                .rows = count,
                .row_bytes = elements * testing::element_bytes(types.from),
                .from = types.from,
                .to = types.to};
  item.source_stride = item.row_bytes + 5;
  item.destination_stride = destination_row_bytes(item) + elements % 3;
  return item;
}

/// One item that is all there is of the slab.
void check_loads(const PackItem& item, std::size_t misalignment) {
  PackTable table;
  table.append(item);
  const PackTargets expected = table.packed();
  for (const auto place : {GuardedMemory::Place::front, GuardedMemory::Place::back}) {
    const GuardedMemory slab(table.slab(), place, misalignment);
    const PackTargets actual = packed_by_kernel(table, slab.data(), ThreadOrder::ascending);
    if (difference(actual, expected).empty()) continue;
    CAPTURE(name(item.from), name(item.to), item.rows, item.row_bytes, misalignment);
    FAIL(difference(actual, expected));
  }
}

}  // namespace

TEST_CASE("the pack kernel knows every misalignment for every pair of types", "[pack_kernel]") {
  check(testing::every_misalignment());
}

TEST_CASE("the pack kernel packs random tables", "[pack_kernel]") {
  check(testing::random_table(GENERATE(1U, 2U)));
}

TEST_CASE("the pack kernel packs rows of any length", "[pack_kernel]") {
  for (const ConvertPair pair : testing::pack_pairs()) {
    CAPTURE(name(pair.from), name(pair.to));
    check(testing::row_shapes(pair));
  }
}

TEST_CASE("the pack kernel converts every value as the host does", "[pack_kernel]") {
  for (const ConvertPair pair : testing::convert_pairs()) {
    CAPTURE(name(pair.from), name(pair.to));
    check(testing::every_value(pair));
  }
}

TEST_CASE("the pack kernel leaves what adjoins alone", "[pack_kernel]") {
  check(testing::adjoining_items());
}

TEST_CASE("the pack kernel loads no aligned 16 bytes that it does not need", "[pack_kernel]") {
  for (const ConvertPair pair : testing::pack_pairs()) {
    for (std::size_t misalignment = 0; misalignment < 16; ++misalignment) {
      for (std::uint64_t elements = 1; elements < 40; ++elements) {
        check_loads(rows(pair, 1 + elements % 3, elements), misalignment);
      }
    }
  }
  SUCCEED();
}

TEST_CASE("the table of the pack kernel numbers tiles through all items", "[pack_kernel]") {
  constexpr std::uint64_t tile_bytes = device::tile_vectors * device::vector_bytes;
  PackItem block{.rows = 1, .row_bytes = tile_bytes - 1};
  block.source_stride = block.destination_stride = tile_bytes - 1;
  PackItem shifted = block;
  shifted.destination = 2;
  alignas(16) std::byte memory[16];
  std::vector<PackEntry> entries(4);
  CHECK(make_pack_entries(std::vector{block, shifted, block}, {memory, memory, nullptr}, entries) ==
        4);
  CHECK(entries[1].first_tile == 1);
  CHECK(entries[2].first_tile == 3);
  CHECK(make_pack_entries({}, {}, {}) == 0);
}

TEST_CASE("the pack kernel finds the entry of a tile", "[pack_kernel]") {
  for (std::uint32_t count = 1; count < 20; ++count) {
    std::vector<PackEntry> entries(count);
    for (std::uint32_t i = 0; i < count; ++i) entries[i].first_tile = std::uint64_t{i} * i;
    for (std::uint64_t tile = 0; tile < count * count; ++tile) {
      const PackEntry& found = device::find_entry(entries.data(), count, tile);
      REQUIRE(found.first_tile <= tile);
      REQUIRE((&found == &entries.back() || (&found)[1].first_tile > tile));
    }
  }
}

namespace {

constexpr std::uintptr_t base = 4096;

/// Addresses are computed, nothing is accessed.
PackEntry entry_of(const PackItem& item) {
  auto* const memory = reinterpret_cast<std::byte*>(base);
  PackEntry entry;
  make_pack_entries({&item, 1}, {memory, memory, memory}, {&entry, 1});
  return entry;
}

void check_place(const PackItem& item, std::uint64_t row, std::uint64_t vector) {
  const PackEntry entry = entry_of(item);
  const std::uint64_t index = row * entry.row_vectors + vector;
  const device::PackCursor found = device::locate(entry, index);
  CHECK(found.source == base + item.source + row * item.source_stride);
  CHECK(found.destination == base + item.destination + row * item.destination_stride);
  CHECK(found.vector == vector);
}

}  // namespace

TEST_CASE("the pack kernel finds its place in more than 2^32 rows or bytes", "[pack_kernel]") {
  constexpr std::uint64_t gi = std::uint64_t{1} << 30;
  SECTION("many rows") {
    const std::uint64_t row_bytes = GENERATE(1U, 16U, 48U, 112U, 4096U);
    const PackItem item{.rows = 40 * gi,
                        .row_bytes = row_bytes,
                        .source_stride = row_bytes * 2,
                        .destination_stride = 4096};
    const std::uint64_t last_vector = entry_of(item).row_vectors - 1;
    for (const std::uint64_t row : {std::uint64_t{0}, 5 * gi, 8 * gi - 1, 33 * gi + 12345}) {
      check_place(item, row, 0);
      check_place(item, row, last_vector);
    }
  }
  SECTION("long rows") {
    const PackItem item{.rows = 3,
                        .row_bytes = 100 * gi + 7,
                        .source_stride = 200 * gi,
                        .destination_stride = 101 * gi};
    for (const std::uint64_t vector : {std::uint64_t{0}, gi, 5 * gi + 3, 100 * gi / 16}) {
      check_place(item, 0, vector);
      check_place(item, 2, vector);
    }
    const auto last = device::move_at<device::CopyVector>(
        entry_of(item), device::locate(entry_of(item), 100 * gi / 16));
    CHECK(last.aligned == base + 100 * gi);
    CHECK(last.destination == base + 100 * gi);
    CHECK(last.begin == 0);
    CHECK(last.end == 7);
  }
}

TEST_CASE("a step of the pack kernel is a warp's vectors", "[pack_kernel]") {
  for (std::uint64_t row_bytes = 1; row_bytes < 2000; row_bytes += 13) {
    PackItem item{.source = 3, .rows = 1000, .row_bytes = row_bytes};
    item.source_stride = row_bytes + 1;
    item.destination_stride = row_bytes + row_bytes % 2;
    const PackEntry entry = entry_of(item);
    for (std::uint64_t index = 0; index < 300; ++index) {
      device::PackCursor stepped = device::locate(entry, index);
      device::step(entry, stepped);
      const device::PackCursor located = device::locate(entry, index + device::warp_threads);
      REQUIRE(stepped.source == located.source);
      REQUIRE(stepped.destination == located.destination);
      REQUIRE(stepped.vector == located.vector);
    }
  }
}
