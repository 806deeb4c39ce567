// core/machine: the machine, and the filesystem of a file.
#include "core/machine.hpp"

#include <string>

#include "support/catch.hpp"
#include "support/temporary_directory.hpp"

using namespace safeshuffle;

TEST_CASE("mounts are found by number, with any number of optional fields", "[machine]") {
  const std::string mounts =
      "21 1 253:0 / / rw,relatime - ext4 /dev/vda rw\n"
      "210 21 0:5 / /dev rw shared:2 master:1 - devtmpfs devtmpfs rw,size=1k\n"
      "37 21 0:44 /a\\040b /mnt rw master:1 - nfs4 server:/exp\\040ort\\134x rw\n"
      "38 21 0:45 / /odd rw - fuse.x\\9 \\04 rw\n"
      "39 21 0:46 / /cut rw\n";
  CHECK(core::find_mount(mounts, "21").type == "ext4");
  CHECK(core::find_mount(mounts, "21").device == "/dev/vda");
  CHECK(core::find_mount(mounts, "210").type == "devtmpfs");
  CHECK(core::find_mount(mounts, "37").type == "nfs4");
  CHECK(core::find_mount(mounts, "37").device == "server:/exp ort\\x");
  CHECK(core::find_mount(mounts, "38").type == "fuse.x\\9");
  CHECK(core::find_mount(mounts, "38").device == "\\04");
  for (const char* number : {"2", "39", "", "40"}) {
    CHECK(core::find_mount(mounts, number).type == "unknown");
  }
}

TEST_CASE("the system tells the filesystem of a file", "[machine]") {
  const testing::TemporaryDirectory directory;
  CHECK(core::mount_of(directory.write("x", "1")).type != "unknown");
  CHECK(core::mount_of("/proc/self/status").type == "proc");
  CHECK(core::mount_of(directory / "absent").type == "unknown");
}

TEST_CASE("the system tells memory and kernel", "[machine]") {
  CHECK(core::memory_bytes() > 0);
  CHECK(core::available_memory_bytes() > 0);
  CHECK(core::available_memory_bytes() <= core::memory_bytes());
  CHECK_FALSE(core::kernel_release().empty());
}
