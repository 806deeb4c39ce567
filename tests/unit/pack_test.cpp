// Packing on the host against a naive pass that moves one element at a time. Whole targets are
// compared, gaps included, so that a byte written outside its row shows.
#include "device/host/pack.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/thread_pool.hpp"
#include "support/catch.hpp"
#include "support/pseudo_random.hpp"
#include "support/reference_convert.hpp"

using namespace safeshuffle;
using testing::ConvertPair;
using testing::PseudoRandom;

namespace {

using Bytes = std::vector<std::byte>;

constexpr std::byte canary{0xa5};

std::uint64_t element_bytes(DType dtype) {
  return std::max(bits(dtype), 8U) / 8;
}

void naive_element(DType from, DType to, const std::byte* source, std::byte* destination) {
  if (from == to) {
    std::memcpy(destination, source, element_bytes(from));
    return;
  }
  std::uint32_t value = 0;
  std::memcpy(&value, source, element_bytes(from));
  value = testing::reference_convert(from, to, value);
  std::memcpy(destination, &value, element_bytes(to));
}

void naive_pack(const std::vector<PackItem>& items, const device::PackBuffers& buffers) {
  for (const PackItem& item : items) {
    std::byte* target = item.target == PackTarget::arena ? buffers.arena : buffers.send;
    for (std::uint64_t row = 0; row < item.rows; ++row) {
      const std::byte* source = buffers.slab + item.source + row * item.source_stride;
      std::byte* destination = target + item.destination + row * item.destination_stride;
      for (std::uint64_t i = 0; i < item.row_bytes / element_bytes(item.from); ++i) {
        naive_element(item.from, item.to, source + i * element_bytes(item.from),
                      destination + i * element_bytes(item.to));
      }
    }
  }
}

/// A table under construction: items lie one after the other in slab and targets.
class Table {
 public:
  /// Appends an item; `source_gap` and `destination_gap` are the bytes between its rows. Starts at
  /// the next place in the slab and the target that has the misalignment (mod 16) asked for.
  void add(ConvertPair types, std::uint64_t rows, std::uint64_t elements, std::uint64_t source_gap,
           std::uint64_t destination_gap, std::uint64_t source_misalignment,
           std::uint64_t destination_misalignment, PackTarget target) {
    PackItem item{.rows = rows,
                  .row_bytes = elements * element_bytes(types.from),
                  .from = types.from,
                  .to = types.to,
                  .target = target};
    item.source_stride = item.row_bytes + source_gap;
    item.destination_stride = destination_row_bytes(item) + destination_gap;
    std::uint64_t& end = target == PackTarget::arena ? arena_end_ : send_end_;
    item.source = place(slab_end_, source_misalignment);
    item.destination = place(end, destination_misalignment);
    slab_end_ = item.source + rows * item.source_stride;
    end = item.destination + rows * item.destination_stride;
    items_.push_back(item);
  }

  /// Packs with `threads` and naively; the targets must be equal to the last byte.
  void check(std::size_t threads) const {
    core::ThreadPool pool(threads - 1);
    const Bytes slab = PseudoRandom(slab_end_).bytes(slab_end_);
    Bytes arena(arena_end_ + 32, canary), send(send_end_ + 32, canary);
    Bytes expected_arena = arena, expected_send = send;
    naive_pack(items_, {slab.data(), expected_arena.data(), expected_send.data()});
    device::pack_on_host(items_, {slab.data(), arena.data(), send.data()}, pool);
    CHECK((arena == expected_arena));
    CHECK((send == expected_send));
  }

 private:
  static std::uint64_t place(std::uint64_t end, std::uint64_t misalignment) {
    return (end + 15) / 16 * 16 + 16 + misalignment;
  }

  std::vector<PackItem> items_;
  std::uint64_t slab_end_ = 0;
  std::uint64_t arena_end_ = 0;
  std::uint64_t send_end_ = 0;
};

std::vector<ConvertPair> all_pairs() {
  std::vector<ConvertPair> pairs = testing::convert_pairs();
  for (const DType same : {DType::U8, DType::F4, DType::BF16, DType::F32, DType::F64}) {
    pairs.push_back({same, same});
  }
  return pairs;
}

}  // namespace

TEST_CASE("every misalignment of source and destination, for every pair of types", "[pack]") {
  Table table;
  for (const ConvertPair pair : all_pairs()) {
    for (std::uint64_t source = 0; source < 16; ++source) {
      for (std::uint64_t destination = 0; destination < 16; ++destination) {
        table.add(pair, 3, 1 + (source * 5 + destination) % 37, source % 4, destination % 5, source,
                  destination, destination % 2 == 0 ? PackTarget::arena : PackTarget::send);
      }
    }
  }
  table.check(1);
}

TEST_CASE("random tables, on any number of threads", "[pack]") {
  const std::size_t threads = GENERATE(1U, 2U, 4U);
  PseudoRandom random(threads);
  const std::vector<ConvertPair> pairs = all_pairs();
  Table table;
  for (int i = 0; i < 500; ++i) {
    table.add(pairs[random.below(pairs.size())], 1 + random.below(40), 1 + random.below(300),
              random.below(2) * random.below(100), random.below(2) * random.below(100),
              random.below(16), random.below(16),
              random.below(2) == 0 ? PackTarget::arena : PackTarget::send);
  }
  table.check(threads);
}

TEST_CASE("large items are cut for several threads without losing or moving a byte", "[pack]") {
  constexpr std::uint64_t mi = std::uint64_t{1} << 20;
  const std::size_t threads = GENERATE(1U, 3U);
  Table table;
  SECTION("one block") {
    table.add({DType::U8, DType::U8}, 1, 3 * mi + 77, 0, 0, 3, 5, {});
  }
  SECTION("one converted block") {
    table.add({DType::F32, DType::BF16}, 1, mi - 3, 0, 0, 1, 3, PackTarget::send);
  }
  SECTION("adjoining rows") {
    table.add({DType::BF16, DType::F16}, 1001, 777, 0, 0, 1, 0, {});
  }
  SECTION("rows longer than a task") {
    table.add({DType::BF16, DType::F32}, 2, mi + 1, 10, 20, 1, 0, {});
  }
  SECTION("rows that tasks cut in the middle") {
    table.add({DType::U8, DType::U8}, 1000, 2501, 13, 0, 7, 1, PackTarget::send);
  }
  SECTION("a run of items of odd lengths") {
    for (std::uint64_t i = 0; i < 9; ++i) {
      table.add({DType::U8, DType::U8}, 1, mi / 2 + 13 * i - 1, 0, 0, i, 0, {});
      table.add({DType::F32, DType::F16}, 5, 3001 + i, 3, 2, i, i, PackTarget::send);
    }
  }
  SECTION("a great many tiny rows") {
    table.add({DType::U8, DType::U8}, mi + 1, 1, 2, 1, 0, 0, {});
    table.add({DType::F16, DType::F32}, mi / 2, 1, 6, 0, 0, 0, {});
    table.add({DType::BF16, DType::BF16}, mi / 2, 1, 6, 0, 0, 0, {});
  }
  table.check(threads);
}

TEST_CASE("an empty table packs nothing", "[pack]") {
  core::ThreadPool pool(1);
  CHECK_NOTHROW(device::pack_on_host({}, {}, pool));
}
