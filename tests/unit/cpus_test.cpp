// Which CPUs threads run on.
#include "core/cpus.hpp"

#include <algorithm>
#include <filesystem>
#include <future>
#include <map>
#include <stdexcept>
#include <string>

#include "support/catch.hpp"
#include "support/temporary_directory.hpp"

using namespace safeshuffle;
using core::CpuSet;

TEST_CASE("lists of CPUs are read and written as the kernel has them", "[core][cpus]") {
  for (const auto& [list, cpus] : std::map<std::string, CpuSet>{
           {"0", {0}}, {"3-5", {3, 4, 5}}, {"0,2", {0, 2}}, {"0-1,4,8-9", {0, 1, 4, 8, 9}}}) {
    CAPTURE(list);
    CHECK(core::parse_cpu_list(list) == cpus);
    CHECK(core::parse_cpu_list(list + "\n") == cpus);
    CHECK(core::cpu_list(cpus) == list);
  }
  CHECK(core::cpu_list({}).empty());
}

TEST_CASE("what is no list of CPUs is none", "[core][cpus]") {
  const auto list = GENERATE(as<std::string>{}, "", "\n", "-", "x", "1-", "1,", "1-2-3", "1 2",
                             "99999999999999999999", "0-4000000000", "-1");
  CAPTURE(list);
  CHECK(core::parse_cpu_list(list).empty());
}

TEST_CASE("the CPUs near a PCI device are those of its node that are asked about", "[core][cpus]") {
  const testing::TemporaryDirectory sysfs;
  sysfs.write("bus/pci/devices/0000:1b:00.0/local_cpulist", "4-7,12-15\n");
  CHECK(core::cpus_near("0000:1B:00.0", {0, 1, 6, 7, 12, 99}, sysfs.path()) == CpuSet{6, 7, 12});
  CHECK(core::cpus_near("0000:1B:00.0", {}, sysfs.path()).empty());
  CHECK(core::cpus_near("0000:1C:00.0", {6}, sysfs.path()).empty());
}

TEST_CASE("a core has the CPUs that the kernel calls siblings", "[core][cpus]") {
  const testing::TemporaryDirectory sysfs;
  const std::string topology = "devices/system/cpu/cpu3/topology";
  std::filesystem::create_directories(sysfs / topology);
  sysfs.write(topology + "/thread_siblings_list", "3,11\n");
  CHECK(core::are_of_one_core({3, 11}, sysfs.path()));
  CHECK(core::are_of_one_core({3}, sysfs.path()));
  CHECK_FALSE(core::are_of_one_core({3, 4}, sysfs.path()));
  CHECK_FALSE(core::are_of_one_core({4, 12}, sysfs.path()));  // not told
  CHECK_FALSE(core::are_of_one_core({}, sysfs.path()));
}

TEST_CASE("what a process is permitted does not depend on where it is bound", "[core][cpus]") {
  const CpuSet permitted = core::permitted_cpus();
  const CpuSet bound = core::allowed_cpus();
  REQUIRE_FALSE(bound.empty());
  CHECK(std::ranges::includes(permitted, bound));
  CpuSet seen_from_one;
  core::run_on({*bound.begin()}, [&] { seen_from_one = core::permitted_cpus(); });
  CHECK(seen_from_one == permitted);
  CHECK(core::allowed_cpus() == bound);
}

TEST_CASE("a call runs on the CPUs it is given, and with it the threads it starts",
          "[core][cpus]") {
  const CpuSet before = core::allowed_cpus();
  const CpuSet one{*before.rbegin()};
  CpuSet inside;
  CpuSet started;
  core::run_on(one, [&] {
    inside = core::allowed_cpus();
    started = std::async(std::launch::async, core::allowed_cpus).get();
  });
  CHECK(inside == one);
  CHECK(started == one);
  CHECK(core::allowed_cpus() == before);
  core::run_on({}, [&] { inside = core::allowed_cpus(); });
  CHECK(inside == before);
}

TEST_CASE("what a call throws on other CPUs is thrown here", "[core][cpus]") {
  const auto fail = [] { throw std::runtime_error("as told"); };
  CHECK_THROWS_WITH(core::run_on(core::allowed_cpus(), fail), "as told");
}
