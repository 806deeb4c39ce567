// core: what is rolled back before a signal ends the process.
#include "core/unfinished.hpp"

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "core/atomic_file.hpp"
#include "core/directory_lock.hpp"
#include "core/new_directory.hpp"
#include "support/catch.hpp"
#include "support/ending_process.hpp"
#include "support/temporary_directory.hpp"

using namespace safeshuffle;
using core::AtomicFile;
using testing::in_ending_process;
using testing::read_file;
using testing::TemporaryDirectory;

namespace {

namespace fs = std::filesystem;

const std::vector<std::string> only_x{"x"};

}  // namespace

TEST_CASE("unfinished files are rolled back, and earlier ones restored", "[core][unfinished]") {
  const TemporaryDirectory directory;
  directory.write("x", "earlier");
  const bool publish = GENERATE(false, true);
  REQUIRE(in_ending_process([&] {
    AtomicFile x(directory / "x");
    AtomicFile y(directory / "y");
    if (publish) {
      x.publish();
      y.publish();
    }
    core::roll_back_unfinished();
    ::_exit(0);
  }));
  CHECK(directory.names() == only_x);
  CHECK(read_file(directory / "x") == "earlier");
}

TEST_CASE("finished files are not rolled back", "[core][unfinished]") {
  const TemporaryDirectory directory;
  REQUIRE(in_ending_process([&] {
    AtomicFile x(directory / "x");
    x.commit();
    core::roll_back_unfinished();
    ::_exit(0);
  }));
  CHECK(directory.names() == only_x);
}

TEST_CASE("what was created for unfinished files goes with them", "[core][unfinished]") {
  const TemporaryDirectory directory;
  REQUIRE(in_ending_process([&] {
    const core::NewDirectory created(directory / "a/b");
    const core::DirectoryLock lock(directory / "a/b", "group", 0);
    const AtomicFile x(directory / "a/b/x");
    core::roll_back_unfinished();
    ::_exit(0);
  }));
  CHECK(directory.names().empty());
}

TEST_CASE("nothing is begun, published or committed once everything is rolled back",
          "[core][unfinished]") {
  const TemporaryDirectory directory;
  REQUIRE(in_ending_process([&] {
    AtomicFile x(directory / "x");
    core::roll_back_unfinished();
    std::thread([&] { x.commit(); }).detach();
    std::thread([&] { AtomicFile(directory / "y").commit(); }).detach();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ::_exit(0);
  }));
  CHECK(directory.names().empty());
}

TEST_CASE("published files get a moment to be committed", "[core][unfinished]") {
  const TemporaryDirectory directory;
  REQUIRE(in_ending_process([&] {
    AtomicFile x(directory / "x");
    x.publish();
    std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      x.commit();
    }).detach();
    core::roll_back_unfinished();
    ::_exit(0);
  }));
  CHECK(directory.names() == only_x);
}
