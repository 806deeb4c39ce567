// core: files that appear whole or not at all.
#include "core/atomic_file.hpp"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/stat.h>
#include <vector>

#include "safeshuffle/error.hpp"

#include "core/descriptor.hpp"
#include "core/posix_file.hpp"
#include "support/catch.hpp"
#include "support/failure.hpp"
#include "support/temporary_directory.hpp"

using namespace safeshuffle;
using core::AtomicFile;
using core::PosixFile;
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

bool has_unnamed_files(const TemporaryDirectory& directory) {
  return core::Descriptor(::open(directory.path().c_str(), O_WRONLY | O_TMPFILE, 0600)).value() !=
         -1;
}

struct stat status_of(const std::string& path) {
  struct stat status {};
  REQUIRE(::lstat(path.c_str(), &status) == 0);
  return status;
}

}  // namespace

TEST_CASE("a file has no name while it is written", "[core][atomic]") {
  const TemporaryDirectory directory;
  if (!has_unnamed_files(directory)) {
    WARN("skipped: this filesystem has no files without a name");
    return;
  }
  const bool replaces = GENERATE(false, true);
  if (replaces) directory.write("x", "earlier");
  AtomicFile file(directory / "x");
  write_text(file, "new");
  file.sync();
  CHECK(directory.names() == (replaces ? only_x : std::vector<std::string>{}));
  file.commit();
  CHECK(directory.names() == only_x);
  CHECK(read_file(directory / "x") == "new");
}

TEST_CASE("a new file has the permissions of any other", "[core][atomic]") {
  const TemporaryDirectory directory;
  const mode_t mask = GENERATE(as<mode_t>(), 0, 022, 077);
  const mode_t before = ::umask(mask);
  AtomicFile(directory / "x").commit();
  static_cast<void>(PosixFile::create(directory / "other", "other"));
  ::umask(before);
  const struct stat made = status_of(directory / "x");
  const struct stat other = status_of(directory / "other");
  CHECK(made.st_mode == (S_IFREG | (0666 & ~mask)));
  CHECK(made.st_mode == other.st_mode);
  CHECK(made.st_gid == other.st_gid);
  CHECK(made.st_nlink == 1);
}

TEST_CASE("a file without a name gets one that is vacant", "[core][atomic]") {
  const TemporaryDirectory directory;
  if (!has_unnamed_files(directory)) {
    WARN("skipped: this filesystem has no files without a name");
    return;
  }
  const auto file = PosixFile::create_unnamed(directory.path().string(), "shown");
  REQUIRE(file);
  directory.write("y", "other");
  const ErrorRecord taken = failure<IoError>([&] { file->link_as(directory / "y"); });
  CHECK(taken.code == EEXIST);
  CHECK(taken.file == "shown");
  CHECK(read_file(directory / "y") == "other");
  file->link_as(directory / "x");
  CHECK(file->has_name(directory / "x"));
}

TEST_CASE("a filesystem may have no files without a name", "[core][atomic]") {
  CHECK_FALSE(PosixFile::create_unnamed("/proc", "x"));
}

TEST_CASE("a name that no file can have is refused at once", "[core][atomic]") {
  const TemporaryDirectory directory;
  const auto code = [&](const std::string& name) {
    return failure<IoError>([&] { AtomicFile(directory / name); }).code;
  };
  CHECK(code(std::string(255, 'x')) == ENAMETOOLONG);  // with what makes it hidden
  CHECK(code(std::string("x\0y", 3)) == EINVAL);
  CHECK(code("missing/x") == ENOENT);
  CHECK(directory.names().empty());
}

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

TEST_CASE("what was published but not committed is rolled back", "[core][atomic]") {
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
