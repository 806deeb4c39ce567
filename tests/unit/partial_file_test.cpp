#include "source/partial_file.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/temporary_directory.hpp"

using namespace safeshuffle;
using source::ByteRanges;
using source::PartialFile;

namespace {

std::vector<std::byte> content_of(std::uint64_t bytes) {
  std::vector<std::byte> content(bytes);
  for (std::size_t i = 0; i < bytes; ++i) content[i] = static_cast<std::byte>(i * 7 + i / 256);
  return content;
}

void write(PartialFile& file, std::uint64_t begin, std::uint64_t end) {
  const std::vector<std::byte> content = content_of(end);
  file.write(begin, std::span(content).subspan(begin));
}

bool has_content(const PartialFile& file, std::uint64_t begin, std::uint64_t end) {
  std::vector<std::byte> read(end - begin);
  file.read(begin, read);
  const std::vector<std::byte> content = content_of(end);
  return std::ranges::equal(read, std::span(content).subspan(begin));
}

}  // namespace

TEST_CASE("ranges of bytes cover what was added", "[source]") {
  std::mt19937 random(GENERATE(range(0U, 20U)));
  std::uniform_int_distribution<std::uint64_t> offset(0, 60);
  ByteRanges ranges;
  std::vector<bool> added(64);
  for (int i = 0; i < 12; ++i) {
    const std::uint64_t begin = offset(random);
    const std::uint64_t end = begin + offset(random) % 4;
    ranges.add(begin, end);
    std::fill(added.begin() + static_cast<long>(begin), added.begin() + static_cast<long>(end),
              true);
    ByteRanges again;
    again.add(ranges.text(), 64);
    for (std::uint64_t first = 0; first < 64; ++first) {
      bool all = true;
      for (std::uint64_t last = first; last <= 64; ++last) {
        CHECK(ranges.cover(first, last) == all);
        CHECK(again.cover(first, last) == all);
        all = all && last < 64 && added[last];
      }
    }
  }
}

TEST_CASE("lines that a killed process has left are no ranges", "[source]") {
  ByteRanges ranges;
  ranges.add("10 20\n30\n40 x\n60 50\n70 80 90\n\n100 1100", 2000);
  CHECK(ranges.text() == "10 20\n");
}

TEST_CASE("a file appears when all of it is on the disk, whoever wrote it", "[source]") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory / "file";
  {
    PartialFile first(path, 1000);
    PartialFile second(path, 1000);
    write(first, 0, 400);
    write(second, 390, 900);
    CHECK_FALSE(first.finish());
    CHECK_FALSE(second.finish());
  }
  CHECK_FALSE(std::filesystem::exists(path));
  PartialFile third(path, 1000);
  CHECK(third.has(0, 900));
  CHECK_FALSE(third.has(899, 2));
  CHECK(has_content(third, 0, 900));
  write(third, 900, 1000);
  CHECK(third.finish());
  const PartialFile complete(path, 1000);
  CHECK(complete.has(0, 1000));
  CHECK(has_content(complete, 0, 1000));
  CHECK(std::distance(std::filesystem::directory_iterator(directory.path()), {}) == 1);
}

TEST_CASE("a file appears once nobody can write to it any more", "[source]") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory / "file";
  PartialFile slow(path, 1000);
  {
    PartialFile fast(path, 1000);
    write(fast, 0, 1000);
    CHECK_FALSE(fast.finish());
  }
  PartialFile later(path, 1000);
  CHECK(later.has(0, 1000));
  CHECK_FALSE(later.finish());
  write(slow, 0, 10);
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK(slow.finish());
  CHECK(has_content(PartialFile(path, 1000), 0, 1000));
  CHECK(std::distance(std::filesystem::directory_iterator(directory.path()), {}) == 1);
}

TEST_CASE("what is noted of a file that is gone or was cut is void", "[source]") {
  const bool is_gone = GENERATE(true, false);
  const testing::TemporaryDirectory directory;
  const std::string path = directory / "file";
  {
    PartialFile file(path, 1000);
    write(file, 0, 900);
    CHECK_FALSE(file.finish());
  }
  std::filesystem::resize_file(path + ".incomplete", 500);
  if (is_gone) std::filesystem::remove(path + ".incomplete");
  PartialFile file(path, 1000);
  CHECK_FALSE(file.has(0, 1));
  write(file, 900, 1000);
  CHECK_FALSE(file.finish());
}

TEST_CASE("notes of more than a file can have are void", "[source]") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory / "file";
  directory.write("file.incomplete", std::string(1000, 'x'));
  directory.write("file.ranges", "0 1001\n200 300\n");
  PartialFile file(path, 1000);
  CHECK_FALSE(file.has(0, 1));
  CHECK(file.has(200, 100));
  write(file, 0, 100);
  CHECK_FALSE(file.finish());
}

TEST_CASE("nothing is noted of a file that was removed while it was written", "[source]") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory / "file";
  PartialFile removed(path, 1000);
  write(removed, 0, 500);
  std::filesystem::remove(path + ".incomplete");
  PartialFile file(path, 1000);
  write(removed, 500, 1000);
  CHECK_FALSE(removed.finish());  // although it has written all
  CHECK_FALSE(std::filesystem::exists(path));
  write(file, 500, 1000);
  CHECK_FALSE(file.finish());
  const PartialFile later(path, 1000);
  CHECK_FALSE(later.has(0, 1));
  CHECK(later.has(500, 500));
}

TEST_CASE("a complete file of another length is made anew", "[source]") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.write("file", "short");
  PartialFile file(path, 1000);
  CHECK_FALSE(file.has(0, 1));
  write(file, 0, 1000);
  CHECK(file.finish());
  CHECK(std::filesystem::file_size(path) == 1000);
}
