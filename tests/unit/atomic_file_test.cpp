// core: files that appear whole or not at all.
#include "core/atomic_file.hpp"

#include <cerrno>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/stat.h>
#include <vector>

#include "safeshuffle/error.hpp"

#include "support/catch.hpp"
#include "support/failure.hpp"
#include "support/temporary_directory.hpp"

using namespace safeshuffle;
using core::AtomicFile;
using testing::failure;
using testing::read_file;
using testing::TemporaryDirectory;

namespace {

namespace fs = std::filesystem;

void write_text(AtomicFile& file, std::string_view text) {
  file.write(0, std::as_bytes(std::span(text)));
}

/// While it lives, this process can open nothing more.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{0, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoMoreFiles() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoMoreFiles(const NoMoreFiles&) = delete;
  NoMoreFiles& operator=(const NoMoreFiles&) = delete;

 private:
  rlimit before_{};
};

const std::vector<std::string> only_x{"x"};

}  // namespace

TEST_CASE("an atomic file appears when it is committed", "[core][atomic]") {
  const TemporaryDirectory directory;
  {
    AtomicFile file(directory / "x");
    write_text(file, "new");
    file.resize(2);
    CHECK(file.size() == 2);
    CHECK_FALSE(fs::exists(directory / "x"));
    file.commit();
    CHECK(read_file(directory / "x") == "ne");
  }
  CHECK(read_file(directory / "x") == "ne");
  CHECK(directory.names() == only_x);
}

TEST_CASE("a committed file takes the place of the earlier one for good", "[core][atomic]") {
  const TemporaryDirectory directory;
  const std::string path = directory.write("x", "earlier");
  {
    AtomicFile file(path);
    write_text(file, "new");
    file.publish();
    CHECK(read_file(path) == "new");
    file.commit();
  }
  CHECK(read_file(path) == "new");
  CHECK(directory.names() == only_x);
}

TEST_CASE("what was published but not committed is taken back", "[core][atomic]") {
  const TemporaryDirectory directory;
  const std::string path = directory / "x";
  const auto publish = [&] {
    AtomicFile file(path);
    write_text(file, "new");
    file.publish();
    CHECK(file.published());
    CHECK(read_file(path) == "new");
  };
  SECTION("where nothing was") {
    publish();
    CHECK(directory.names().empty());
  }
  SECTION("where an earlier file was") {
    directory.write("x", "earlier");
    publish();
    CHECK(read_file(path) == "earlier");
    CHECK(directory.names() == only_x);
  }
  SECTION("where a symbolic link was") {
    fs::create_symlink("nowhere", path);
    publish();
    CHECK(fs::read_symlink(path) == "nowhere");
    CHECK(directory.names() == only_x);
  }
}

TEST_CASE("a commit that fails after the rename changes nothing", "[core][atomic]") {
  const TemporaryDirectory directory;
  const bool replaces = GENERATE(false, true);
  if (replaces) directory.write("x", "earlier");
  {
    AtomicFile file(directory / "x");
    write_text(file, "new");
    const auto commit = [&] {
      const NoMoreFiles limit;  // the directory cannot be opened to flush it
      file.commit();
    };
    CHECK(failure<IoError>(commit).code == EMFILE);
    CHECK(file.published());
  }
  CHECK(directory.names() == (replaces ? only_x : std::vector<std::string>{}));
  if (replaces) CHECK(read_file(directory / "x") == "earlier");
}

TEST_CASE("a directory is not replaced by a file", "[core][atomic]") {
  const TemporaryDirectory directory;
  fs::create_directory(directory / "x");
  const ErrorRecord record = failure<IoError>([&] { AtomicFile(directory / "x"); });
  CHECK(record.code == EISDIR);
  CHECK(record.file == directory / "x");
  CHECK(directory.names() == only_x);
  CHECK(fs::is_directory(directory / "x"));
}

TEST_CASE("a directory that has come meanwhile is not replaced by a file", "[core][atomic]") {
  const TemporaryDirectory directory;
  {
    AtomicFile file(directory / "x");
    fs::create_directory(directory / "x");
    CHECK(failure<IoError>([&] { file.commit(); }).code == EISDIR);
  }
  CHECK(directory.names() == only_x);
  CHECK(fs::is_directory(directory / "x"));
}

TEST_CASE("what another has put under the name is left alone", "[core][atomic]") {
  const TemporaryDirectory directory;
  const bool earlier = GENERATE(true, false);
  if (earlier) directory.write("x", "earlier");
  {
    AtomicFile lost(directory / "x");
    write_text(lost, "lost");
    lost.publish();
    AtomicFile kept(directory / "x");
    write_text(kept, "kept");
    kept.commit();
  }
  CHECK(read_file(directory / "x") == "kept");
  CHECK(directory.names() == only_x);
}

TEST_CASE("what is no file is not replaced by one", "[core][atomic]") {
  const TemporaryDirectory directory;
  REQUIRE(::mkfifo((directory / "x").c_str(), 0600) == 0);
  const ErrorRecord record = failure<IoError>([&] { AtomicFile(directory / "x"); });
  CHECK(record.file == directory / "x");
  CHECK(record.cause == "is not a regular file");
  CHECK(fs::is_fifo(directory / "x"));
  CHECK(directory.names() == only_x);
}
