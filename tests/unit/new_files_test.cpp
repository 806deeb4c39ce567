// core: files that appear whole or not at all, whatever ends their writer.
#include "core/new_files.hpp"

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "safeshuffle/error.hpp"

#include "core/posix_file.hpp"
#include "support/catch.hpp"
#include "support/ending_process.hpp"
#include "support/failure.hpp"
#include "support/temporary_directory.hpp"

using namespace safeshuffle;
using core::NewFile;
using core::PosixFile;
using testing::failure;
using testing::in_ending_process;
using testing::read_file;
using testing::TemporaryDirectory;

namespace {

namespace fs = std::filesystem;

void write_text(NewFile& file, std::string_view text) {
  file.content().write(0, std::as_bytes(std::span(text)));
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

struct stat status_of(const std::string& path) {
  struct stat status {};
  REQUIRE(::lstat(path.c_str(), &status) == 0);
  return status;
}

bool any(const std::string&) {
  return true;
}

const std::string digits = "0123abcd";

}  // namespace

TEST_CASE("a new file has the permissions of any other", "[core][new files]") {
  const TemporaryDirectory directory;
  const mode_t mask = GENERATE(as<mode_t>(), 0, 022, 077);
  const mode_t before = ::umask(mask);
  NewFile(directory / "x").commit();
  static_cast<void>(PosixFile::create(directory / "other", "other"));
  ::umask(before);
  const struct stat made = status_of(directory / "x");
  const struct stat other = status_of(directory / "other");
  CHECK(made.st_mode == (S_IFREG | (0666 & ~mask)));
  CHECK(made.st_mode == other.st_mode);
  CHECK(made.st_gid == other.st_gid);
  CHECK(made.st_nlink == 1);
}

TEST_CASE("a name that no file can have is refused at once", "[core][new files]") {
  const TemporaryDirectory directory;
  const auto code = [&](const std::string& name) {
    return failure<IoError>([&] { NewFile(directory / name); }).code;
  };
  CHECK(code(std::string(255, 'x')) == ENAMETOOLONG);  // with what makes it hidden
  CHECK(code(std::string("x\0y", 3)) == EINVAL);
  CHECK(code("missing/x") == ENOENT);
  CHECK(directory.names().empty());
}

TEST_CASE("a new file appears when it is committed", "[core][new files]") {
  const TemporaryDirectory directory;
  {
    NewFile file(directory / "x");
    write_text(file, "new");
    file.content().resize(2);
    CHECK(file.content().identity().size == 2);
    CHECK_FALSE(fs::exists(directory / "x"));
    CHECK(directory.names().at(0).starts_with(".x.safeshuffle-new-"));
    file.commit();
    CHECK(read_file(directory / "x") == "ne");
  }
  CHECK(read_file(directory / "x") == "ne");
  CHECK(directory.names() == only_x);
}

TEST_CASE("a committed file takes the place of the earlier one for good", "[core][new files]") {
  const TemporaryDirectory directory;
  const std::string path = directory.write("x", "earlier");
  {
    NewFile file(path);
    write_text(file, "new");
    file.publish();
    CHECK(read_file(path) == "new");
    file.commit();
  }
  CHECK(read_file(path) == "new");
  CHECK(directory.names() == only_x);
}

TEST_CASE("what was published but not committed is rolled back", "[core][new files]") {
  const TemporaryDirectory directory;
  const std::string path = directory / "x";
  const auto publish = [&] {
    NewFile file(path);
    write_text(file, "new");
    file.publish();
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

TEST_CASE("a commit that fails after the rename changes nothing", "[core][new files]") {
  const TemporaryDirectory directory;
  const bool replaces = GENERATE(false, true);
  if (replaces) directory.write("x", "earlier");
  {
    NewFile file(directory / "x");
    write_text(file, "new");
    const auto commit = [&] {
      const NoMoreFiles limit;  // the directory cannot be opened to flush it
      file.commit();
    };
    CHECK(failure<IoError>(commit).code == EMFILE);
    CHECK(read_file(directory / "x") == "new");
  }
  CHECK(directory.names() == (replaces ? only_x : std::vector<std::string>{}));
  if (replaces) CHECK(read_file(directory / "x") == "earlier");
}

TEST_CASE("a directory is not replaced by a file", "[core][new files]") {
  const TemporaryDirectory directory;
  fs::create_directory(directory / "x");
  const ErrorRecord record = failure<IoError>([&] { NewFile(directory / "x"); });
  CHECK(record.code == EISDIR);
  CHECK(record.file == directory / "x");
  CHECK(directory.names() == only_x);
  CHECK(fs::is_directory(directory / "x"));
}

TEST_CASE("a directory that has come meanwhile is not replaced by a file", "[core][new files]") {
  const TemporaryDirectory directory;
  {
    NewFile file(directory / "x");
    fs::create_directory(directory / "x");
    CHECK(failure<IoError>([&] { file.commit(); }).code == EISDIR);
  }
  CHECK(directory.names() == only_x);
  CHECK(fs::is_directory(directory / "x"));
}

TEST_CASE("what another has put under the name is left alone", "[core][new files]") {
  const TemporaryDirectory directory;
  const bool earlier = GENERATE(true, false);
  if (earlier) directory.write("x", "earlier");
  {
    NewFile lost(directory / "x");
    write_text(lost, "lost");
    lost.publish();
    NewFile kept(directory / "x");
    write_text(kept, "kept");
    kept.commit();
  }
  CHECK(read_file(directory / "x") == "kept");
  CHECK(directory.names() == only_x);
}

TEST_CASE("what is no file is not replaced by one", "[core][new files]") {
  const TemporaryDirectory directory;
  REQUIRE(::mkfifo((directory / "x").c_str(), 0600) == 0);
  const ErrorRecord record = failure<IoError>([&] { NewFile(directory / "x"); });
  CHECK(record.file == directory / "x");
  CHECK(record.cause == "is not a regular file");
  CHECK(fs::is_fifo(directory / "x"));
  CHECK(directory.names() == only_x);
}

TEST_CASE("the unfinished file of a killed writer is removed by the next one",
          "[core][new files]") {
  const TemporaryDirectory directory;
  REQUIRE(in_ending_process([&] {
    const NewFile killed(directory / "x");
    ::_exit(0);
  }));
  REQUIRE(directory.names().size() == 1);
  SECTION("of the same file") {
    NewFile(directory / "x").commit();
    CHECK(directory.names() == only_x);
  }
  SECTION("not of another") {
    NewFile(directory / "y").commit();
    CHECK(directory.names().size() == 2);
  }
  SECTION("of several files") {
    core::remove_leftovers(directory.path(), any);
    CHECK(directory.names().empty());
  }
}

TEST_CASE("a writer that is killed while it publishes", "[core][new files]") {
  const TemporaryDirectory directory;
  directory.write("x", "earlier");
  REQUIRE(in_ending_process([&] {
    NewFile killed(directory / "x");
    write_text(killed, "new");
    killed.publish();
    ::_exit(0);
  }));
  REQUIRE(directory.names().size() == 2);
  CHECK(read_file(directory / "x") == "new");
  core::remove_leftovers(directory.path(), any);
  CHECK(directory.names() == only_x);
  CHECK(read_file(directory / "x") == "new");
}

TEST_CASE("the earlier file of a killed writer gets its name back if nothing has it",
          "[core][new files]") {
  const TemporaryDirectory directory;
  directory.write(".x.safeshuffle-old-" + digits, "earlier");
  core::remove_leftovers(directory.path(), any);
  CHECK(directory.names() == only_x);
  CHECK(read_file(directory / "x") == "earlier");
}

TEST_CASE("files of living writers are left alone", "[core][new files]") {
  const TemporaryDirectory directory;
  directory.write("x", "earlier");
  {
    NewFile living(directory / "x");
    const bool publish = GENERATE(false, true);
    if (publish) living.publish();
    REQUIRE(directory.names().size() == 2);
    core::remove_leftovers(directory.path(), any);
    CHECK(directory.names().size() == 2);
  }
  CHECK(directory.names() == only_x);
  CHECK(read_file(directory / "x") == "earlier");
}

TEST_CASE("a living writer has its earlier file aside and no other yet", "[core][new files]") {
  const TemporaryDirectory directory;
  const NewFile living(directory / "x");
  const std::string aside = directory.write(".x.safeshuffle-old-" + digits, "earlier");
  core::remove_leftovers(directory.path(), any);
  CHECK(read_file(aside) == "earlier");
}

TEST_CASE("files of other programs are left alone", "[core][new files]") {
  const TemporaryDirectory directory;
  const std::string mark = ".safeshuffle-new-";
  const std::vector<std::string> names{".x" + mark + digits.substr(1),
                                       ".x" + mark + "0123ABCD",
                                       "x" + mark + digits,
                                       ".x.other-new-" + digits,
                                       mark + digits,
                                       "." + mark + digits};
  for (const std::string& name : names) directory.write(name, "");
  core::remove_leftovers(directory.path(), any);
  CHECK(directory.names().size() == names.size());
}

TEST_CASE("unfinished files are rolled back, and earlier ones restored", "[core][new files]") {
  const TemporaryDirectory directory;
  directory.write("x", "earlier");
  const bool publish = GENERATE(false, true);
  REQUIRE(in_ending_process([&] {
    NewFile x(directory / "x");
    NewFile y(directory / "y");
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

TEST_CASE("finished files are not rolled back", "[core][new files]") {
  const TemporaryDirectory directory;
  REQUIRE(in_ending_process([&] {
    NewFile x(directory / "x");
    x.commit();
    core::roll_back_unfinished();
    ::_exit(0);
  }));
  CHECK(directory.names() == only_x);
}

TEST_CASE("what was created for unfinished files goes with them", "[core][new files]") {
  const TemporaryDirectory directory;
  REQUIRE(in_ending_process([&] {
    core::NewDirectory created(directory / "a/b");
    created.lock("group", 0);
    const NewFile x(directory / "a/b/x");
    core::roll_back_unfinished();
    ::_exit(0);
  }));
  CHECK(directory.names().empty());
}

TEST_CASE("nothing is begun, published or committed once everything is rolled back",
          "[core][new files]") {
  const TemporaryDirectory directory;
  REQUIRE(in_ending_process([&] {
    NewFile x(directory / "x");
    core::roll_back_unfinished();
    std::thread([&] { x.commit(); }).detach();
    std::thread([&] { NewFile(directory / "y").commit(); }).detach();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ::_exit(0);
  }));
  CHECK(directory.names().empty());
}

TEST_CASE("published files get a moment to be committed", "[core][new files]") {
  const TemporaryDirectory directory;
  REQUIRE(in_ending_process([&] {
    NewFile x(directory / "x");
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
