// Which CPUs threads run on.
#include "core/cpus.hpp"

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

TEST_CASE("the CPUs near a PCI device are those of its node that are allowed", "[core][cpus]") {
  const CpuSet allowed = core::allowed_cpus();
  REQUIRE_FALSE(allowed.empty());
  const testing::TemporaryDirectory sysfs;
  sysfs.write("bus/pci/devices/0000:1b:00.0/local_cpulist",
              std::to_string(*allowed.begin()) + ",1000-1010\n");
  CHECK(core::cpus_near("0000:1B:00.0", sysfs.path()) == CpuSet{*allowed.begin()});
  CHECK(core::cpus_near("0000:1C:00.0", sysfs.path()).empty());
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
