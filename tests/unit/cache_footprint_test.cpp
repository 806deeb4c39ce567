// pipeline/cache_footprint: what reading has brought into the page cache, and dropping it.
#include "pipeline/cache_footprint.hpp"

#include <fcntl.h>
#include <numeric>
#include <optional>

#include "core/arithmetic.hpp"
#include "core/defaults.hpp"
#include "core/page.hpp"
#include "pipeline/memory_need.hpp"
#include "source/files.hpp"
#include "support/cached_pages.hpp"
#include "support/catalogs.hpp"
#include "support/catch.hpp"
#include "support/sample_file.hpp"
#include "support/wrapped_files.hpp"

using namespace safeshuffle;
using safeshuffle::core::mebibyte;
using safeshuffle::core::page_bytes;
using safeshuffle::testing::cached_bytes_of;
using safeshuffle::testing::ScratchDirectory;

namespace {

constexpr std::uint64_t file_bytes = 4 * mebibyte + 100;
const comm::Heartbeat no_beat = [] {};

/// Files that are cold; none if the filesystem keeps its pages.
struct FootprintBench {
  explicit FootprintBench(std::uint32_t count = 1) {
    for (std::uint32_t i = 0; i < count; ++i) {
      files.push_back(testing::write_sample(directory.file(std::to_string(i)), i, file_bytes));
      cold = cold && testing::make_cold(files.back().path);
    }
    if (!cold) WARN("skipped: the filesystem of " << files[0].path << " keeps its pages");
  }

  std::vector<std::uint32_t> all() const {
    std::vector<std::uint32_t> indexes(files.size());
    std::iota(indexes.begin(), indexes.end(), 0U);
    return indexes;
  }

  pipeline::CachedBefore before(const source::Source& source = source::files()) const {
    return {source, files, all(), no_beat};
  }

  ScratchDirectory directory;
  std::vector<FileInfo> files;
  bool cold = true;
};

/// Files of which the system does not tell what is cached.
class Untold final : public testing::WrappedFiles {
 public:
  std::unique_ptr<source::Handle> open(const std::string& path,
                                       source::Access access) const override {
    return std::make_unique<File>(files_.open(path, access));
  }

 private:
  class File final : public source::Handle {
   public:
    explicit File(std::unique_ptr<source::Handle> file) : file_(std::move(file)) {}
    const core::FileIdentity& identity() const noexcept override { return file_->identity(); }
    std::size_t read_some(std::uint64_t offset, std::span<std::byte> to) const override {
      return file_->read_some(offset, to);
    }
    void drop_cached(std::uint64_t offset, std::uint64_t bytes) const noexcept override {
      file_->drop_cached(offset, bytes);
    }

   private:
    std::unique_ptr<source::Handle> file_;
  };
};

}  // namespace

TEST_CASE("what a range has outside of others", "[cache_footprint]") {
  using pipeline::outside;
  using pipeline::Ranges;
  CHECK(outside({}, {3, 9}) == Ranges{{3, 9}});
  CHECK(outside({}, {3, 3}).empty());
  const Ranges ranges{{10, 20}, {30, 40}};
  CHECK(outside(ranges, {0, 50}) == Ranges{{0, 10}, {20, 30}, {40, 50}});
  CHECK(outside(ranges, {10, 40}) == Ranges{{20, 30}});
  CHECK(outside(ranges, {15, 35}) == Ranges{{20, 30}});
  CHECK(outside(ranges, {12, 18}).empty());
  CHECK(outside(ranges, {20, 30}) == Ranges{{20, 30}});
  CHECK(outside(ranges, {45, 50}) == Ranges{{45, 50}});
}

TEST_CASE("bytes that are in both lists of ranges", "[cache_footprint]") {
  CHECK(pipeline::overlap({}, {{0, 5}}) == 0);
  CHECK(pipeline::overlap({{0, 10}, {20, 30}}, {{5, 25}, {28, 100}}) == 12);
}

TEST_CASE("what the page cache has of a file is found", "[cache_footprint]") {
  const FootprintBench bench;
  if (!bench.cold) return;
  const auto file = source::files().open(bench.files[0].path, source::Access::cached);
  CHECK(pipeline::cached_ranges(*file, file_bytes) == pipeline::Ranges{});
  const std::string& path = bench.files[0].path;
  const testing::WarmRange middle(path, mebibyte, mebibyte);
  const testing::WarmRange page(path, 3 * mebibyte, page_bytes);
  const testing::WarmRange end(path, file_bytes - 1, 1);
  CHECK(pipeline::cached_ranges(*file, file_bytes) ==
        pipeline::Ranges{{mebibyte, 2 * mebibyte},
                         {3 * mebibyte, 3 * mebibyte + page_bytes},
                         {core::align_down(file_bytes, page_bytes), file_bytes}});
  const testing::WarmRange everything(path, 0, file_bytes);
  CHECK(pipeline::cached_ranges(*file, file_bytes) == pipeline::Ranges{{0, file_bytes}});
}

TEST_CASE("only what was not cached before is dropped", "[cache_footprint]") {
  const FootprintBench bench(2);
  if (!bench.cold) return;
  const std::string& partly = bench.files[0].path;
  const std::string& entirely = bench.files[1].path;
  std::optional<testing::WarmRange> part(std::in_place, partly, mebibyte, mebibyte);
  std::optional<testing::WarmRange> whole(std::in_place, entirely, 0, file_bytes);
  const pipeline::CachedBefore before = bench.before();
  testing::make_warm(partly, 0, file_bytes);
  part.reset();  // what a process has mapped could not be dropped
  whole.reset();
  SECTION("within a range") {
    CHECK(before.drop(0, {0, 4 * mebibyte}) == 3 * mebibyte);
    CHECK(cached_bytes_of(partly) == mebibyte + page_bytes);
  }
  SECTION("no part of a page") {
    CHECK(before.drop(0, {100, page_bytes}) == 0);
    CHECK(cached_bytes_of(partly) == file_bytes);
  }
  SECTION("everywhere") {
    CHECK(before.drop_all(no_beat) == file_bytes - mebibyte);
    CHECK(cached_bytes_of(partly) == mebibyte);
    const auto now = before.now(0);
    REQUIRE(now);
    CHECK(*now == pipeline::Ranges{{mebibyte, 2 * mebibyte}});
  }
  CHECK(cached_bytes_of(entirely) == file_bytes);
}

TEST_CASE("what is still being read ahead is dropped, too", "[cache_footprint]") {
  const FootprintBench bench;
  if (!bench.cold) return;
  const pipeline::CachedBefore before = bench.before();
  for (int i = 0; i < 20; ++i) {
    CAPTURE(i);
    const auto file = source::files().open(bench.files[0].path, source::Access::cached);
    ::posix_fadvise(file->descriptor(), 0, 0, POSIX_FADV_WILLNEED);
    before.drop_all(no_beat);
    CHECK(cached_bytes_of(bench.files[0].path) == 0);
  }
}

TEST_CASE("a file of which the system does not tell what is cached is left alone",
          "[cache_footprint]") {
  const FootprintBench bench;
  const Untold untold;
  const pipeline::CachedBefore before = bench.before(untold);
  testing::make_warm(bench.files[0].path, 0, file_bytes);
  CHECK(before.of(0) == nullptr);
  CHECK(before.drop(0, {0, file_bytes}) == 0);
  CHECK(before.drop_all(no_beat) == 0);
  pipeline::DroppingSource(untold).open(bench.files[0].path, source::Access::cached).reset();
  CHECK(cached_bytes_of(bench.files[0].path) == file_bytes);
}

TEST_CASE("a file that is gone is no error of dropping", "[cache_footprint]") {
  const FootprintBench bench(2);
  std::filesystem::remove(bench.files[0].path);
  const pipeline::CachedBefore before = bench.before();
  std::filesystem::remove(bench.files[1].path);
  CHECK(before.of(0) == nullptr);
  CHECK(before.drop_all(no_beat) == 0);
}

TEST_CASE("a handle of a dropping source leaves the page cache as it was", "[cache_footprint]") {
  const FootprintBench bench;
  if (!bench.cold) return;
  const std::string& path = bench.files[0].path;
  const std::uint64_t cached = GENERATE(0U, 2 * page_bytes);
  const pipeline::DroppingSource source(source::files());
  for (const std::uint64_t read : {std::uint64_t{8}, mebibyte, file_bytes}) {
    testing::make_warm(path, mebibyte, cached);
    CHECK(source.open(path, source::Access::cached)->cached_bytes(0, file_bytes) == cached);
    std::vector<std::byte> bytes(read);
    source::read(*source.open(path, source::Access::cached), path, 0, bytes);
    CHECK(testing::is_sample(bytes, 0, 0));
    CHECK(cached_bytes_of(path) == cached);
  }
}

TEST_CASE("files that do not fit in memory beside the tensors are warned of", "[cache_footprint]") {
  const Catalog catalog =
      testing::make_catalog({{{"a", DType::U8, {1000}}}, {{"b", DType::U8, {1000}}}});
  const Plan plan = make_plan(catalog, std::vector<Placement>(2, testing::cut(0, 2)), 2);
  const std::uint64_t on_host =
      plan.ranks()[0].peak_device_bytes + plan.ranks()[1].peak_device_bytes;
  const auto warning = [&](DeviceKind device, std::uint64_t available, const char* second_node) {
    const std::vector<pipeline::Memory> memory{{"1", "one", available},
                                               {second_node, "two", available}};
    return pipeline::prefetch_warning(plan, device, memory);
  };
  CHECK(warning(DeviceKind::cuda, 2000, "1").empty());
  CHECK(warning(DeviceKind::cuda, 1999, "1") ==
        "prefetch: 2000 bytes of files do not fit in the 1999 bytes of memory that two has "
        "available: part of the files will not stay in the page cache");
  CHECK(warning(DeviceKind::cuda, 1999, "2").empty());
  CHECK(warning(DeviceKind::cuda, 0, "1").empty());  // not known
  CHECK(warning(DeviceKind::host, 2000 + on_host, "1").empty());
  CHECK_FALSE(warning(DeviceKind::host, 1999 + on_host, "1").empty());
}
