// core/page_cache: what the system holds of a file, and dropping it.
#include "core/page_cache.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <sched.h>
#include <string>
#include <sys/mount.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/deadline.hpp"
#include "core/descriptor.hpp"
#include "core/page.hpp"
#include "core/posix_file.hpp"
#include "source/files.hpp"
#include "support/cached_pages.hpp"
#include "support/catch.hpp"
#include "support/ending_process.hpp"
#include "support/other_user.hpp"
#include "support/sample_file.hpp"

using namespace safeshuffle;
using safeshuffle::testing::ScratchDirectory;

namespace {

// Also a multiple of the page size where that is not 4 KiB.
constexpr std::uint64_t half_file = std::uint64_t{1} << 20;
constexpr std::uint64_t file_bytes = 2 * half_file;

/// A file of `size` bytes, all of them on storage. Written in pieces, because the system may cache
/// what one call writes as one block, of which it drops no part.
std::string write_file(const ScratchDirectory& directory) {
  const std::string path = directory.file("x");
  const auto file = core::PosixFile::create(path, path);
  const std::vector<std::byte> piece(half_file / 16);
  for (std::uint64_t at = 0; at < file_bytes; at += piece.size()) file.write(at, piece);
  file.sync();
  return path;
}

core::Descriptor open_descriptor(const std::string& path) {
  return core::Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

/// Mounts an overlay over `directory`, for this process only; returns whether it could.
bool mount_overlay(const ScratchDirectory& directory) {
  std::string options = "lowerdir=" + directory.file("lower");
  for (const char* other : {"upper", "work"}) {
    options += std::string(",") + other + "dir=" + directory.file(other);
  }
  return ::unshare(CLONE_NEWNS) == 0 &&
         ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("overlay", directory.file("merged").c_str(), "overlay", 0, options.c_str()) == 0;
}

/// Confines this thread to the core that it runs on, and starts another there that is always busy.
void share_core_with_busy_thread() {
  cpu_set_t core;
  CPU_ZERO(&core);
  CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &core);
  ::sched_setaffinity(0, sizeof(core), &core);
  std::thread([] {
    for (std::atomic<int> rounds = 0;;) ++rounds;
  }).detach();
}

}  // namespace

TEST_CASE("the cached bytes of a range are counted, and can be dropped", "[page_cache]") {
  const ScratchDirectory directory;
  const std::string path = write_file(directory);
  const auto file = source::files().open(path, source::Access::cached);
  CHECK(file->cached_bytes(0, file_bytes) == file_bytes);
  file->drop_cached(0, half_file);
  if (file->cached_bytes(0, half_file) == half_file) {
    WARN("skipped: the filesystem of " << path << " has no storage behind its pages");
    return;
  }
  CHECK(file->cached_bytes(0, half_file) == 0);
  CHECK(file->cached_bytes(half_file, half_file) == half_file);
  CHECK(file->cached_bytes(half_file / 2, half_file) == half_file / 2);
  CHECK(file->cached_bytes(half_file, 100) == 100);
  CHECK(file->cached_bytes(file_bytes, half_file) == 0);
  file->drop_cached(0, file_bytes);
  CHECK(file->cached_bytes(0, file_bytes) == 0);
}

// Where the filesystem caches no large blocks, this cannot fail.
TEST_CASE("no page is missed if the scheduler interrupts the count", "[page_cache]") {
  const ScratchDirectory directory;
  const std::string path = directory.file("x");
  const auto written = core::PosixFile::create(path, path);
  written.write(0, std::vector<std::byte>(core::most_cached_block));  // cached as one block
  written.write(core::most_cached_block, std::vector<std::byte>(core::page_bytes));
  written.sync();
  const testing::WarmRange warm(path, 0, core::most_cached_block + core::page_bytes);
  CHECK(testing::in_ending_process([&path] {
    share_core_with_busy_thread();
    const auto file = source::files().open(path, source::Access::cached);
    constexpr std::uint64_t bytes =
        half_file + core::page_bytes;  // from the middle of the block on
    const core::Deadline deadline(std::chrono::milliseconds(500));
    bool all = true;
    while (all && !deadline.expired()) all = file->cached_bytes(half_file, bytes) == bytes;
    ::_exit(all ? EXIT_SUCCESS : EXIT_FAILURE);
  }));
}

TEST_CASE("no bytes are not all bytes", "[page_cache]") {
  const ScratchDirectory directory;
  const auto file = source::files().open(write_file(directory), source::Access::cached);
  CHECK(file->cached_bytes(0, 0) == 0);
  file->drop_cached(0, 0);
  CHECK(file->cached_bytes(0, file_bytes) == file_bytes);
}

TEST_CASE("mincore counts what cachestat counts", "[page_cache]") {
  const ScratchDirectory directory;
  const core::Descriptor file = open_descriptor(write_file(directory));
  core::drop_cached(file.value(), half_file / 2, half_file);
  for (const auto& [offset, bytes] :
       std::vector<std::pair<std::uint64_t, std::uint64_t>>{{0, file_bytes},
                                                            {half_file, half_file},
                                                            {100, half_file},
                                                            {0, 0},
                                                            {file_bytes, half_file}}) {
    const auto counted = core::cached_bytes_by_mincore(file.value(), offset, bytes);
    CHECK(counted.has_value());
    CHECK(counted == core::cached_bytes(file.value(), offset, bytes));
  }
}

TEST_CASE("of files of others, mincore says that all is cached, and is not believed",
          "[page_cache]") {
  if (!testing::is_root()) {
    WARN("skipped: only root can become somebody else");
    return;
  }
  const ScratchDirectory directory;
  const core::Descriptor file = open_descriptor(write_file(directory));
  CHECK(testing::in_ending_process([&file] {
    testing::become_nobody();
    ::_exit(core::cached_bytes_by_mincore(file.value(), 0, file_bytes) ? EXIT_FAILURE
                                                                       : EXIT_SUCCESS);
  }));
}

TEST_CASE("a sample of the pages tells what is cached", "[page_cache]") {
  const ScratchDirectory directory;
  const core::Descriptor file = open_descriptor(write_file(directory));
  if (!core::sampled_cached_bytes(file.value(), 0, file_bytes)) {
    WARN("skipped: this filesystem cannot read without waiting");
    return;
  }
  CHECK(core::sampled_cached_bytes(file.value(), 0, file_bytes) == file_bytes);
  CHECK(core::sampled_cached_bytes(file.value(), 100, 3) == 3);
  CHECK(core::sampled_cached_bytes(file.value(), 0, 0) == 0);
  core::drop_cached(file.value(), 0, half_file);
  if (core::cached_bytes(file.value(), 0, half_file) != 0) {
    WARN("skipped: this filesystem has no storage behind its pages");
    return;
  }
  CHECK(core::sampled_cached_bytes(file.value(), half_file, half_file) == half_file);
  CHECK(testing::holds_when_cold(directory.file("x"), [&file] {
    return core::sampled_cached_bytes(file.value(), 0, half_file) == 0;
  }));
}

TEST_CASE("a sample brings few pages into the page cache", "[page_cache]") {
  const ScratchDirectory directory;
  const core::Descriptor file = open_descriptor(write_file(directory));
  core::drop_cached(file.value(), 0, file_bytes);
  if (core::cached_bytes(file.value(), 0, file_bytes) != 0) {
    WARN("skipped: this filesystem has no storage behind its pages");
    return;
  }
  if (!core::sampled_cached_bytes(file.value(), 0, file_bytes)) {
    WARN("skipped: this filesystem cannot read without waiting");
    return;
  }
  CHECK(core::cached_bytes(file.value(), 0, file_bytes) <= file_bytes / 8);
}

TEST_CASE("of files of others, a sample tells what is cached", "[page_cache]") {
  if (!testing::is_root()) {
    WARN("skipped: only root can become somebody else");
    return;
  }
  const ScratchDirectory directory;
  const core::Descriptor file = open_descriptor(write_file(directory));
  if (!core::sampled_cached_bytes(file.value(), 0, file_bytes)) {
    WARN("skipped: this filesystem cannot read without waiting");
    return;
  }
  CHECK(testing::in_ending_process([&file] {
    testing::become_nobody();
    ::_exit(core::sampled_cached_bytes(file.value(), 0, file_bytes) == file_bytes ? EXIT_SUCCESS
                                                                                  : EXIT_FAILURE);
  }));
}

TEST_CASE("holes are found where they are", "[page_cache]") {
  const ScratchDirectory directory;
  const std::string path = directory.file("x");
  const auto created = core::PosixFile::create(path, path);
  created.write(0, std::vector<std::byte>(half_file, std::byte{1}));
  created.resize(2 * file_bytes);
  created.write(2 * file_bytes - half_file, std::vector<std::byte>(half_file, std::byte{1}));
  created.sync();
  const auto file = source::files().open(path, source::Access::cached);
  if (!file->has_hole(half_file, half_file)) {
    WARN("skipped: the filesystem of " << path << " has no holes");
    return;
  }
  CHECK(file->has_hole(0, 2 * file_bytes));
  CHECK(file->has_hole(0, half_file + 1));
  CHECK_FALSE(file->has_hole(0, half_file));
  CHECK_FALSE(file->has_hole(2 * file_bytes - half_file, half_file));
}

TEST_CASE("a file of an overlay is cached where the file below is", "[page_cache]") {
  const ScratchDirectory directory;
  for (const char* name : {"lower", "upper", "work", "merged"}) {
    std::filesystem::create_directory(directory.file(name));
  }
  const std::string below = write_file(directory);
  std::filesystem::rename(below, directory.file("lower/x"));
  constexpr int skipped = 77;
  int status = -1;
  const pid_t child = ::fork();
  if (child == 0) {
    if (!mount_overlay(directory)) ::_exit(skipped);
    const core::Descriptor file = open_descriptor(directory.file("merged/x"));
    ::_exit(core::cached_bytes(file.value(), 0, file_bytes) == file_bytes ? EXIT_SUCCESS
                                                                          : EXIT_FAILURE);
  }
  REQUIRE(::waitpid(child, &status, 0) == child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == skipped) {
    WARN("skipped: no overlay can be mounted");
    return;
  }
  CHECK(status == 0);
}

TEST_CASE("pages without storage behind them stay", "[page_cache]") {
  if (::access("/dev/shm", W_OK) != 0) {
    WARN("skipped: /dev/shm is not writable");
    return;
  }
  const ScratchDirectory directory("/dev/shm");
  const auto file = source::files().open(write_file(directory), source::Access::cached);
  file->drop_cached(0, file_bytes);
  CHECK(file->cached_bytes(0, file_bytes) == file_bytes);
}
