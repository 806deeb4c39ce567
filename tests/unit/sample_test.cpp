// probe/sample: what a probe reads, and whether it is cold or warm.
#include "probe/sample.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include "core/defaults.hpp"
#include "core/posix_file.hpp"
#include "source/files.hpp"
#include "support/catch.hpp"
#include "support/memory_source.hpp"
#include "support/sample_file.hpp"

using namespace safeshuffle;
using core::mebibyte;
using probing::Sample;
using probing::sample_ranges;
using testing::ScratchDirectory;

namespace {

std::vector<FileInfo> files_of(const std::vector<std::uint64_t>& sizes) {
  std::vector<FileInfo> files;
  for (const std::uint64_t size : sizes) files.push_back({.path = "f", .size = size});
  return files;
}

std::string text(const std::vector<probing::SampleRange>& ranges) {
  std::string result;
  for (const auto& range : ranges) {
    result += std::to_string(range.file) + ":" + std::to_string(range.offset) + "+" +
              std::to_string(range.bytes) + " ";
  }
  return result;
}

/// A file of `bytes` bytes, all on storage.
FileInfo write_file(const ScratchDirectory& directory, const std::string& name,
                    std::uint64_t bytes) {
  const std::string path = directory.file(name);
  const auto file = core::PosixFile::create(path, path);
  const std::vector<std::byte> piece(mebibyte, std::byte{1});
  for (std::uint64_t at = 0; at < bytes; at += mebibyte) file.write(at, piece);
  file.sync();
  return testing::describe_file(path);
}

Sample whole_files(const std::vector<FileInfo>& files) {
  return {source::files(), files, sample_ranges(files, 0, ~std::uint64_t{0})};
}

}  // namespace

TEST_CASE("a sample is a part of all files one after the other", "[probe]") {
  const auto files = files_of({10000, 0, 20000, 30000});
  CHECK(text(sample_ranges(files, 0, 60000)) == "0:0+10000 2:0+20000 3:0+30000 ");
  CHECK(text(sample_ranges(files, 9000, 5000)) == "0:8192+1808 2:0+3192 ");
  CHECK(text(sample_ranges(files, 15000, 4000)) == "2:4096+4000 ");
  CHECK(text(sample_ranges(files, 10000, 1)) == "2:0+1 ");
  CHECK(text(sample_ranges(files, 60000, 100)) == "");
  CHECK(text(sample_ranges(files, 0, 0)) == "");
  CHECK(text(sample_ranges(files_of({}), 0, 1)) == "");
}

TEST_CASE("a sample has no more files than a process may open", "[probe]") {
  CHECK(sample_ranges(files_of(std::vector<std::uint64_t>(1000, 8)), 0, 8000).size() == 64);
}

TEST_CASE("a sample becomes cold and warm, and says how much of it is cached", "[probe]") {
  const ScratchDirectory directory;
  const std::vector<FileInfo> files{write_file(directory, "a", 5 * mebibyte),
                                    write_file(directory, "b", 2 * mebibyte)};
  Sample sample = whole_files(files);
  if (!sample.make_cold().empty()) {
    WARN("skipped: " << sample.make_cold());
    return;
  }
  CHECK(sample.bytes() == 7 * mebibyte);
  CHECK(sample.cached_bytes() == 0);
  CHECK(sample.make_warm().empty());
  CHECK(sample.cached_bytes() == 7 * mebibyte);
  CHECK(sample.make_cold().empty());
  CHECK(sample.cached_bytes() == 0);
  sample.shrink(6 * mebibyte);
  CHECK(text(sample.ranges()) == "0:0+5242880 1:0+1048576 ");
  CHECK(sample.make_warm().empty());
  CHECK(sample.cached_bytes() == 6 * mebibyte);
}

TEST_CASE("dirty pages are written before they are dropped", "[probe]") {
  const ScratchDirectory directory;
  const std::string path = directory.file("x");
  const auto file = core::PosixFile::create(path, path);
  file.write(0, std::vector<std::byte>(8 * mebibyte, std::byte{1}));
  const Sample sample = whole_files({testing::describe_file(path)});
  const std::string obstacle = sample.make_cold();
  if (obstacle.find("keeps its files in memory") == std::string::npos) CHECK(obstacle == "");
}

TEST_CASE("files in memory cannot be made cold", "[probe]") {
  if (::access("/dev/shm", W_OK) != 0) {
    WARN("skipped: /dev/shm is not writable");
    return;
  }
  const ScratchDirectory directory("/dev/shm");
  const Sample sample = whole_files({write_file(directory, "x", mebibyte)});
  CHECK(sample.make_cold() ==
        "1048576 of 1048576 bytes stay in the page cache: tmpfs keeps its files in memory");
  CHECK(sample.make_warm().empty());
}

TEST_CASE("files with holes are neither cold nor warm", "[probe]") {
  const ScratchDirectory directory;
  const std::string path = directory.file("x");
  core::PosixFile::create(path, path).resize(mebibyte);
  const Sample sample = whole_files({testing::describe_file(path)});
  CHECK(sample.make_cold().find("holes") != std::string::npos);
  CHECK(sample.make_warm().find("holes") != std::string::npos);
}

TEST_CASE("what is not known to be cold or warm is neither", "[probe]") {
  testing::MemorySource source;
  source.put("/x", std::string(10000, 'x'));
  std::vector<FileInfo> files = files_of({10000});
  files[0].path = "/x";
  const Sample sample(source, files, sample_ranges(files, 0, 10000));
  CHECK_FALSE(sample.cached_bytes());
  CHECK(sample.make_cold().find("not told") != std::string::npos);
  CHECK(sample.make_warm().find("not told") != std::string::npos);
}
