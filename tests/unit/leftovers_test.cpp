// core: what writers that were killed have left.
#include "core/leftovers.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include "core/atomic_file.hpp"
#include "core/posix_file.hpp"
#include "support/catch.hpp"
#include "support/temporary_directory.hpp"

using namespace safeshuffle;
using core::AtomicFile;
using testing::read_file;
using testing::TemporaryDirectory;

namespace {

namespace fs = std::filesystem;

bool any_name(const std::string&) {
  return true;
}

bool only(const std::string& name, const TemporaryDirectory& directory) {
  return directory.names() == std::vector<std::string>{name};
}

const std::string digits = "0123456789abcdef";

/// What the writer of `path` has on disk while it publishes, or from the beginning on filesystems
/// where every file has a name. Destroyed, it leaves that as a killed writer does.
class NamedWriter {
 public:
  explicit NamedWriter(const fs::path& path)
      : file_(core::PosixFile::create(
            core::hidden_beside(path, core::HiddenFile::unfinished).string(), path.string())) {
    REQUIRE(file_.try_lock());
  }

 private:
  core::PosixFile file_;
};

}  // namespace

TEST_CASE("the unfinished file of a killed writer is removed by the next one",
          "[core][leftovers]") {
  const TemporaryDirectory directory;
  { const NamedWriter lost(directory / "x"); }
  REQUIRE(directory.names().size() == 1);
  SECTION("of the same file") {
    AtomicFile(directory / "x").commit();
    CHECK(only("x", directory));
  }
  SECTION("not of another") {
    AtomicFile(directory / "y").commit();
    CHECK(directory.names().size() == 2);
  }
  SECTION("of several files") {
    core::recover_leftovers(directory.path(), any_name);
    CHECK(directory.names().empty());
  }
}

TEST_CASE("the earlier file of a killed writer", "[core][leftovers]") {
  const TemporaryDirectory directory;
  const std::string aside = directory.write(".x.old-" + digits, "earlier");
  SECTION("gets its name back if nothing has it") {
    core::remove_superseded(directory.path(), any_name);
    CHECK(fs::exists(aside));
    core::recover_leftovers(directory.path(), any_name);
    CHECK(only("x", directory));
    CHECK(read_file(directory / "x") == "earlier");
  }
  SECTION("stays until another one is whole in its place") {
    directory.write("x", "new");
    { const AtomicFile given_up(directory / "x"); }
    CHECK(read_file(aside) == "earlier");
    CHECK(read_file(directory / "x") == "new");
    AtomicFile(directory / "x").commit();
    CHECK(only("x", directory));
  }
}

TEST_CASE("files of living writers are left alone", "[core][leftovers]") {
  const TemporaryDirectory directory;
  directory.write("x", "earlier");
  const auto clean_up = [&] {
    REQUIRE(directory.names().size() == 2);
    core::recover_leftovers(directory.path(), any_name);
    core::remove_superseded(directory.path(), any_name);
    CHECK(directory.names().size() == 2);
  };
  SECTION("while the new file has its temporary name") {
    const NamedWriter living(directory / "x");
    clean_up();
  }
  SECTION("while the new file is published") {
    {
      AtomicFile living(directory / "x");
      living.publish();
      clean_up();
    }
    CHECK(only("x", directory));
  }
  CHECK(read_file(directory / "x") == "earlier");
}

TEST_CASE("a living writer has its earlier file aside and no other yet", "[core][leftovers]") {
  const TemporaryDirectory directory;
  const NamedWriter living(directory / "x");
  const std::string aside = directory.write(".x.old-" + digits, "earlier");
  core::recover_leftovers(directory.path(), any_name);
  CHECK(read_file(aside) == "earlier");
}

TEST_CASE("files of other programs are left alone", "[core][leftovers]") {
  const TemporaryDirectory directory;
  const std::vector<std::string> names{".x.tmp-" + digits.substr(1), ".x.tmp-0123456789ABCDEF",
                                       "x.tmp-" + digits, ".x.bak-" + digits, ".tmp-" + digits};
  for (const std::string& name : names) directory.write(name, "");
  core::recover_leftovers(directory.path(), any_name);
  core::remove_superseded(directory.path(), any_name);
  CHECK(directory.names().size() == names.size());
}
