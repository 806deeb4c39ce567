// core: new directories, and the right to write into one.
#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "safeshuffle/error.hpp"

#include "core/new_files.hpp"
#include "core/posix_file.hpp"
#include "core/process.hpp"
#include "support/catch.hpp"
#include "support/ending_process.hpp"
#include "support/failure.hpp"
#include "support/temporary_directory.hpp"

using namespace safeshuffle;
using core::NewDirectory;
using testing::failure;
using testing::TemporaryDirectory;

namespace fs = std::filesystem;

TEST_CASE("a directory is locked by one group, which others are told of", "[core][lock]") {
  const TemporaryDirectory directory;
  std::optional<NewDirectory> first(directory.path());
  CHECK(first->lock("first", 3) == 3);
  const ErrorRecord record =
      failure<ConfigError>([&] { NewDirectory(directory.path()).lock("second", 0); });
  CHECK(record.file == directory.path());
  CHECK(record.cause.find("process " + std::to_string(::getpid()) + " on " + core::host_name() +
                          ", since 2") != std::string::npos);
  first.reset();
  CHECK(directory.names().empty());
  CHECK(NewDirectory(directory.path()).lock("second", 0) == 0);
  CHECK(directory.names().empty());
}

TEST_CASE("ranks of one group share a lock", "[core][lock]") {
  const TemporaryDirectory directory;
  NewDirectory first(directory.path());
  CHECK(first.lock("group", 2) == 2);
  CHECK(NewDirectory(directory.path()).lock("group", 5) == 2);
  CHECK(directory.names() == std::vector<std::string>{".safeshuffle.lock"});
  CHECK_THROWS_AS(NewDirectory(directory.path()).lock("other", 0), ConfigError);
}

TEST_CASE("a lock ends with its process, and what is left of it is taken over", "[core][lock]") {
  const TemporaryDirectory directory;
  REQUIRE(testing::in_ending_process([&] {
    NewDirectory killed(directory.path());
    killed.lock("killed", 0);
    ::_exit(0);
  }));
  REQUIRE(directory.names() == std::vector<std::string>{".safeshuffle.lock"});
  CHECK(NewDirectory(directory.path()).lock("next", 1) == 1);
  CHECK(directory.names().empty());
}

TEST_CASE("a lock that is removed and made again is held by one at a time", "[core][lock]") {
  const TemporaryDirectory directory;
  const auto take_turns = [&](int child) {
    const std::string alone = directory / "alone";
    for (int turn = 0; turn < 100; ++turn) {
      try {
        NewDirectory mine(directory.path());
        mine.lock("group" + std::to_string(child), 0);
        static_cast<void>(core::PosixFile::create(alone, alone));  // fails if there is one
        fs::remove(alone);
      } catch (const ConfigError&) {  // the others took all the time there was
      }
    }
  };
  std::vector<pid_t> children;
  for (int child = 0; child < 4; ++child) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    try {
      take_turns(child);
      ::_exit(0);
    } catch (const Error&) {
      ::_exit(1);
    }
  }
  for (const pid_t child : children) {
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  CHECK(directory.names().empty());
}

TEST_CASE("a directory that cannot be locked", "[core][lock]") {
  const TemporaryDirectory directory;
  NewDirectory created(directory.path());
  fs::create_symlink("elsewhere", directory / ".safeshuffle.lock");
  CHECK(failure<IoError>([&] { created.lock("group", 0); }).code == ELOOP);
}

TEST_CASE("a new directory that is not kept is removed if it is empty", "[core][directory]") {
  const TemporaryDirectory directory;
  fs::create_directory(directory / "old");
  SECTION("with its new parents") {
    const bool slash = GENERATE(false, true);
    NewDirectory(directory / "old/a/b" + (slash ? "/" : ""));
    CHECK(fs::is_empty(directory / "old"));
  }
  SECTION("not what was there before") {
    NewDirectory(directory / "old");
    CHECK(fs::exists(directory / "old"));
  }
  SECTION("not with something in it") {
    {
      const NewDirectory created(directory / "old/a/b");
      directory.write("old/a/x", "");
    }
    CHECK_FALSE(fs::exists(directory / "old/a/b"));
    CHECK(fs::exists(directory / "old/a/x"));
  }
  SECTION("with what another process has created for the same purpose") {
    const auto missing = core::missing_directories(directory / "old/a/b");
    CHECK(missing == std::vector<fs::path>{directory / "old/a/b", directory / "old/a"});
    const NewDirectory first(directory / "old/a/b", missing);
    { const NewDirectory last(directory / "old/a/b", missing); }
    CHECK(fs::is_empty(directory / "old"));
  }
  SECTION("not a link to nowhere") {
    fs::create_symlink("nowhere/else", directory / "link");
    CHECK_THROWS_AS(NewDirectory(directory / "link/a"), IoError);
    CHECK(fs::is_symlink(directory / "link"));
  }
}
