// Packing on the host against a naive pass that moves one element at a time. Whole targets are
// compared, gaps included, so that a byte written outside its row shows.
#include "device/host/pack.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "safeshuffle/error.hpp"

#include "core/thread_pool.hpp"
#include "support/catch.hpp"
#include "support/pack_cases.hpp"
#include "support/reference_convert.hpp"

using namespace safeshuffle;
using testing::element_bytes;
using testing::PackTable;
using testing::PackTargets;

namespace {

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
    std::byte* target = item.target == PackTarget::arena ? buffers.arena : buffers.pack_buffer;
    for (std::uint64_t row = 0; row < item.rows; ++row) {
      const std::byte* source = buffers.source + item.source + row * item.source_stride;
      std::byte* destination = target + item.destination + row * item.destination_stride;
      for (std::uint64_t i = 0; i < item.row_bytes / element_bytes(item.from); ++i) {
        naive_element(item.from, item.to, source + i * element_bytes(item.from),
                      destination + i * element_bytes(item.to));
      }
    }
  }
}

/// A slab that is not in memory: it can only be read, up to `end`.
class ReadSlab final : public device::PackSource {
 public:
  explicit ReadSlab(std::span<const std::byte> slab, std::uint64_t end = ~std::uint64_t{0})
      : slab_(slab), end_(end) {}

  void read(std::uint64_t offset, std::span<std::byte> to) const override {
    if (offset + to.size() > std::min<std::uint64_t>(end_, slab_.size())) throw IoError("the end");
    std::ranges::copy(slab_.subspan(offset, to.size()), to.begin());
    ++reads_;
  }

  std::size_t reads() const noexcept { return reads_; }

 private:
  mutable std::atomic<std::size_t> reads_{0};
  std::span<const std::byte> slab_;
  std::uint64_t end_;
};

/// A slab of which nothing but whole blocks is in memory, each at its own address: what is within
/// one of them can be viewed.
class ViewedSlab final : public device::PackSource {
 public:
  ViewedSlab(std::span<const std::byte> slab, std::uint64_t block_bytes)
      : slab_(slab), block_bytes_(block_bytes) {
    for (std::uint64_t at = 0; at < slab.size(); at += block_bytes) {
      const auto block = slab.subspan(at, std::min<std::uint64_t>(block_bytes, slab.size() - at));
      blocks_.emplace_back(block.begin(), block.end());
    }
  }

  void read(std::uint64_t offset, std::span<std::byte> to) const override {
    slab_.read(offset, to);
  }

  const std::byte* view(std::uint64_t offset, std::uint64_t bytes) const override {
    const std::uint64_t block = offset / block_bytes_;
    const std::uint64_t skip = offset % block_bytes_;
    return bytes <= block_bytes_ - skip ? blocks_[block].data() + skip : nullptr;
  }

  std::size_t reads() const noexcept { return slab_.reads(); }

 private:
  ReadSlab slab_;
  std::uint64_t block_bytes_;
  std::vector<testing::Bytes> blocks_;
};

/// Remembers which threads have filled which 2 MiB of the arena.
class TouchedSlab final : public device::PackSource {
 public:
  explicit TouchedSlab(std::span<const std::byte> slab) : slab_(slab) {}

  void read(std::uint64_t offset, std::span<std::byte> to) const override {
    slab_.read(offset, to);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // so that all threads take part
    const std::scoped_lock lock(mutex_);
    touches_.push_back({to.data(), to.data() + to.size() - 1, std::this_thread::get_id()});
  }

  /// The threads, by huge page of an arena that begins there.
  std::map<std::ptrdiff_t, std::set<std::thread::id>> threads_of_pages(
      const std::byte* arena) const {
    constexpr std::ptrdiff_t huge_page = 2 << 20;
    std::map<std::ptrdiff_t, std::set<std::thread::id>> threads;
    for (const Touch& touch : touches_) {
      threads[(touch.first - arena) / huge_page].insert(touch.thread);
      threads[(touch.last - arena) / huge_page].insert(touch.thread);
    }
    return threads;
  }

 private:
  struct Touch {
    const std::byte* first;
    const std::byte* last;
    std::thread::id thread;
  };

  ReadSlab slab_;
  mutable std::mutex mutex_;
  mutable std::vector<Touch> touches_;
};

/// Packs with `threads`, from memory, by reading and from parts that are in memory, and naively;
/// the targets must be equal to the last byte.
void check(const PackTable& table, std::size_t threads) {
  PackTargets expected = table.blank();
  naive_pack(table.items(),
             {table.slab().data(), expected.arena.data(), expected.send.data(), nullptr});
  CHECK(difference(table.packed(threads), expected) == "");
  const ReadSlab slab(table.slab());
  CHECK(difference(table.packed(threads, &slab), expected) == "");
  const ViewedSlab in_parts(table.slab(), 300'007);
  CHECK(difference(table.packed(threads, &in_parts), expected) == "");
}

}  // namespace

TEST_CASE("every misalignment of source and destination, for every pair of types", "[pack]") {
  check(testing::every_misalignment(), 1);
}

TEST_CASE("tasks end with huge pages, also within what is converted", "[pack]") {
  constexpr std::uint64_t huge_page = 2 << 20;
  const std::uint64_t before_end = GENERATE(0U, 1U, 3U, 4U, 65U);
  const auto [from, to] = GENERATE(table<DType, DType>(
      {{DType::BF16, DType::F32}, {DType::F32, DType::F16}, {DType::U8, DType::U8}}));
  PackTable table;
  table.append({.destination = huge_page - before_end,
                .rows = 1,
                .row_bytes = huge_page,
                .source_stride = huge_page,
                .destination_stride = 2 * huge_page,
                .from = from,
                .to = to});
  check(table, 2);
}

TEST_CASE("no huge page is touched by two threads", "[pack]") {
  PackTable table;
  constexpr std::uint64_t bytes = 1'500'032;
  for (std::uint64_t i = 0; i < 20; ++i) {
    table.append({.source = i * bytes,
                  .destination = i * (bytes + 256),
                  .rows = 1,
                  .row_bytes = bytes,
                  .source_stride = bytes,
                  .destination_stride = bytes});
  }
  const TouchedSlab slab(table.slab());
  const PackTargets packed = table.packed(3, &slab);
  for (const auto& [page, threads] : slab.threads_of_pages(packed.arena.data())) {
    INFO("page " << page);
    CHECK(threads.size() == 1);
  }
}

TEST_CASE("what cannot be read is an error, on any number of threads", "[pack]") {
  const std::size_t threads = GENERATE(1U, 3U);
  const PackTable table = testing::random_table(1);
  const ReadSlab slab(table.slab(), table.slab().size() / 2);
  CHECK_THROWS_AS(table.packed(threads, &slab), IoError);
}

TEST_CASE("small items that lie close together are read together", "[pack]") {
  const std::size_t threads = GENERATE(1U, 3U);
  PackTable table;
  constexpr std::size_t count = 8000;
  std::uint64_t source = 5;
  SECTION("one after the other, some with gaps") {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t row = 8 + i % 100 * 4;
      const DType to = i % 3 == 0 ? DType::BF16 : DType::F16;
      table.append({.source = source,
                    .destination = i * 1024,
                    .rows = 1 + i % 2,
                    .row_bytes = row,
                    .source_stride = row + i % 5 * 2,
                    .destination_stride = row + 4,
                    .from = DType::F16,
                    .to = to});
      source = source + (1 + i % 2) * (row + i % 5 * 2) + i % 7 * 300;
    }
    const ReadSlab slab(table.slab());
    table.packed(threads, &slab);
    CHECK(slab.reads() < count / 20);
  }
  SECTION("backwards") {
    for (std::size_t i = 0; i < count; ++i) {
      table.append({.source = (count - i) * 64,
                    .destination = i * 64,
                    .rows = 1,
                    .row_bytes = 50,
                    .source_stride = 50,
                    .destination_stride = 50});
    }
  }
  SECTION("among large ones, and far apart") {
    for (std::size_t i = 0; i < 200; ++i) {
      const std::uint64_t row = i % 4 == 0 ? 9000 : 100;
      table.append({.source = source,
                    .destination = i * 9008,
                    .rows = 1,
                    .row_bytes = row,
                    .source_stride = row,
                    .destination_stride = row});
      source += row + (i % 4 == 2 ? 100'000 : 0);
    }
  }
  check(table, threads);
}

TEST_CASE("what is converted or lies close together is not read if it is in memory", "[pack]") {
  constexpr std::uint64_t mi = std::uint64_t{1} << 20;
  const std::size_t threads = GENERATE(1U, 3U);
  PackTable table;
  SECTION("one block") {
    table.add({{DType::F32, DType::BF16}, 1, mi, 0, 0, 1, 3});
  }
  SECTION("rows") {
    table.add({{DType::BF16, DType::F16}, 500, 1000, 2000, 0, 1, 0});
    table.add({{DType::U8, DType::U8}, 500, 1000, 2000, 0, 1, 0});
    table.add({{DType::BF16, DType::F16}, 20, 1000, mi, 0, 1, 0});
  }
  SECTION("small items") {
    for (std::size_t i = 0; i < 1000; ++i) table.add({{DType::U8, DType::U8}, 1, 50 + i % 7});
  }
  const ViewedSlab whole(table.slab(), table.slab().size());
  table.packed(threads, &whole);
  CHECK(whole.reads() == 0);
  const ViewedSlab in_parts(table.slab(), mi);
  table.packed(threads, &in_parts);
  const ReadSlab unseen(table.slab());
  table.packed(threads, &unseen);
  CHECK(in_parts.reads() < unseen.reads());
}

TEST_CASE("rows that begin up to 7 KiB apart are read together, others one by one", "[pack]") {
  constexpr std::uint64_t rows = 512;
  const auto reads = [](std::uint64_t row_bytes, std::uint64_t stride) {
    PackTable table;
    table.append({.source = 7,
                  .rows = rows,
                  .row_bytes = row_bytes,
                  .source_stride = stride,
                  .destination_stride = row_bytes});
    check(table, 2);
    const ReadSlab slab(table.slab());
    table.packed(1, &slab);
    return slab.reads();
  };
  CHECK(reads(4096, 7168) < rows / 16);
  CHECK(reads(16, 7168) < rows / 16);
  CHECK(reads(16, 7169) == rows);
  CHECK(reads(4096, 7169) == rows);
}

TEST_CASE("random tables, on any number of threads", "[pack]") {
  const std::size_t threads = GENERATE(1U, 2U, 4U);
  check(testing::random_table(threads), threads);
}

TEST_CASE("large items are cut for several threads without losing or moving a byte", "[pack]") {
  constexpr std::uint64_t mi = std::uint64_t{1} << 20;
  const std::size_t threads = GENERATE(1U, 3U);
  PackTable table;
  SECTION("one block") {
    table.add({{DType::U8, DType::U8}, 1, 3 * mi + 77, 0, 0, 3, 5});
  }
  SECTION("one converted block") {
    table.add({{DType::F32, DType::BF16}, 1, mi - 3, 0, 0, 1, 3, PackTarget::pack_buffer});
  }
  SECTION("short rows, close to each other and far apart") {
    table.add({{DType::BF16, DType::BF16}, 5000, 50, 200, 0, 1, 0});
    table.add({{DType::BF16, DType::F16}, 300, 100, 9000, 40, 1, 0, PackTarget::pack_buffer});
    table.add({{DType::U8, DType::U8}, 40, 3000, 2000, 0, 1, 7});
    table.add({{DType::U8, DType::U8}, 5, 1000, mi, 0, 1, 7});
  }
  SECTION("adjoining rows") {
    table.add({{DType::BF16, DType::F16}, 1001, 777, 0, 0, 1, 0});
  }
  SECTION("rows longer than a task") {
    table.add({{DType::BF16, DType::F32}, 2, mi + 1, 10, 20, 1, 0});
  }
  SECTION("rows that tasks cut in the middle") {
    table.add({{DType::U8, DType::U8}, 1000, 2501, 13, 0, 7, 1, PackTarget::pack_buffer});
  }
  SECTION("a run of items of odd lengths") {
    for (std::uint64_t i = 0; i < 9; ++i) {
      table.add({{DType::U8, DType::U8}, 1, mi / 2 + 13 * i - 1, 0, 0, i, 0});
      table.add({{DType::F32, DType::F16}, 5, 3001 + i, 3, 2, i, i, PackTarget::pack_buffer});
    }
  }
  SECTION("a great many tiny rows") {
    table.add({{DType::U8, DType::U8}, mi + 1, 1, 2, 1, 0, 0});
    table.add({{DType::F16, DType::F32}, mi / 2, 1, 6, 0, 0, 0});
    table.add({{DType::BF16, DType::BF16}, mi / 2, 1, 6, 0, 0, 0});
  }
  check(table, threads);
}

TEST_CASE("an empty table packs nothing", "[pack]") {
  core::ThreadPool pool(1);
  CHECK_NOTHROW(device::pack_on_host({}, {}, pool));
}
