// Slabs of which parts are in memory, and others in files.
#include "pipeline/file_slab.hpp"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "safeshuffle/error.hpp"

#include "io/files.hpp"
#include "io/path_recorder.hpp"
#include "source/files.hpp"
#include "support/catch.hpp"
#include "support/sample_file.hpp"

using namespace safeshuffle;
using safeshuffle::testing::ScratchDirectory;

namespace {

constexpr std::uint64_t slab_bytes = 10'000;

/// A slab of sample bytes, of which [1000, 3000), [3000, 4000), [5000, 7000) and [9000, 10000) are
/// in a file only.
struct SlabBench {
  SlabBench() {
    std::ifstream(info.path, std::ios::binary)
        .read(reinterpret_cast<char*>(slab.data()), slab_bytes);
    std::vector<io::LeftRange> left;
    for (const auto& [begin, bytes] :
         {std::pair{1000, 2000}, {3000, 1000}, {5000, 2000}, {9000, 1000}}) {
      left.push_back({&files, 0, static_cast<std::uint64_t>(begin),
                      static_cast<std::uint64_t>(bytes), slab.data() + begin,
                      begin == 9000 ? nullptr : files.open(0)});
      std::fill_n(slab.begin() + begin, bytes, std::byte{0});
    }
    in_file.emplace(slab.data(), std::move(left));
  }

  bool reads(std::uint64_t offset, std::uint64_t bytes) const {
    std::vector<std::byte> read(bytes);
    in_file->read(offset, read);
    return testing::is_sample(read, 0, offset);
  }

  bool views(std::uint64_t offset, std::uint64_t bytes) const {
    const std::byte* const view = in_file->view(offset, bytes);
    return view != nullptr && testing::is_sample({view, bytes}, 0, offset);
  }

  ScratchDirectory directory;
  FileInfo info = testing::write_sample(directory.file("a"), 0, slab_bytes);
  io::PathRecorder recorder;
  io::Files files{{info}, {}, source::files(), recorder, nullptr};
  std::vector<std::byte> slab{slab_bytes};
  std::optional<pipeline::FileSlab> in_file;
};

}  // namespace

TEST_CASE("any part of a slab can be read, wherever it is", "[slab]") {
  const SlabBench bench;
  CHECK(bench.reads(0, slab_bytes));
  const std::vector<std::uint64_t> places{0,    1,    999,  1000, 1001, 2999, 3000,
                                          3001, 3999, 4000, 8999, 9000, 9999, 10'000};
  for (const std::uint64_t begin : places) {
    for (const std::uint64_t end : places) {
      CAPTURE(begin, end);
      if (begin <= end) CHECK(bench.reads(begin, end - begin));
    }
  }
}

TEST_CASE("a part of a slab can be viewed if it is all in memory", "[slab]") {
  const SlabBench bench;
  for (const auto& [begin, end] :
       {std::pair{0, 1}, {0, 1000}, {999, 1000}, {4000, 5000}, {7000, 9000}, {8999, 9000}}) {
    CAPTURE(begin, end);
    CHECK(bench.views(static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end - begin)));
  }
  for (const auto& [begin, end] : {std::pair{0, 1001},
                                   {999, 1001},
                                   {1000, 1001},
                                   {1000, 3000},
                                   {2999, 3001},
                                   {3000, 4000},
                                   {3000, 4001},
                                   {3999, 4001},
                                   {4999, 5001},
                                   {4000, 7000},
                                   {6999, 7001},
                                   {8999, 9001},
                                   {9000, 10'000}}) {
    CAPTURE(begin, end);
    CHECK(bench.in_file->view(static_cast<std::uint64_t>(begin),
                              static_cast<std::uint64_t>(end - begin)) == nullptr);
  }
}

TEST_CASE("a file that shrinks under a slab is an error", "[slab]") {
  const SlabBench bench;
  CHECK_NOTHROW(bench.in_file->check_unchanged(source::files()));
  std::filesystem::resize_file(bench.info.path, 9500);
  CHECK(bench.reads(0, 9500));
  CHECK_THROWS_AS(bench.reads(9000, 600), IoError);
  CHECK_THROWS_AS(bench.in_file->check_unchanged(source::files()), IoError);
}
