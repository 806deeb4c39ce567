// How a rank reads: defaults, and where its reader threads go.
#include "io/policy.hpp"
#include "support/catch.hpp"

using namespace safeshuffle;
using core::CpuSet;
using io::ReadingPlace;

namespace {

constexpr std::uint64_t mib = 1 << 20;

CpuSet cpus(unsigned first, unsigned count) {
  CpuSet set;
  for (unsigned cpu = first; cpu < first + count; ++cpu) set.insert(cpu);
  return set;
}

ReadingPlace place(DeviceKind device, unsigned cores, unsigned sharers) {
  ReadingPlace result;
  result.device = device;
  result.cores = cores;
  result.usable = result.bound = cpus(0, cores);
  result.sharers = sharers;
  return result;
}

unsigned threads(DeviceKind device, unsigned cores, unsigned sharers) {
  return reader_options({}, place(device, cores, sharers)).threads;
}

}  // namespace

TEST_CASE("a GPU gets a share of the cores as reader threads, a host always eight", "[reading]") {
  CHECK(threads(DeviceKind::cuda, 16, 1) == 15);
  CHECK(threads(DeviceKind::cuda, 128, 8) == 15);
  CHECK(threads(DeviceKind::cuda, 192, 8) == 16);
  CHECK(threads(DeviceKind::cuda, 64, 8) == 7);
  CHECK(threads(DeviceKind::cuda, 16, 8) == 4);
  CHECK(threads(DeviceKind::cuda, 1, 8) == 4);
  CHECK(threads(DeviceKind::host, 1, 1) == 8);
  CHECK(threads(DeviceKind::host, 2, 8) == 8);
  CHECK(threads(DeviceKind::host, 128, 8) == 8);
}

TEST_CASE("ranks that share cores make fewer requests at a time", "[reading]") {
  const auto requests = [](unsigned cores, unsigned sharers, Options options = {}) {
    ReadingPlace remote = place(DeviceKind::host, cores, sharers);
    remote.is_remote = true;
    return reader_options(options, remote).threads;
  };
  CHECK(requests(2, 1) == 16);
  CHECK(requests(2, 2) == 8);
  CHECK(requests(2, 4) == 4);
  CHECK(requests(1, 8) == 4);
  CHECK(requests(64, 8) == 16);
  Options options;
  options.remote.connections = 40;
  CHECK(requests(2, 4, options) == 40);
}

TEST_CASE("options that are given are taken as they are", "[reading]") {
  const auto device = GENERATE(DeviceKind::host, DeviceKind::cuda);
  Options options;
  CHECK(reader_options(options, place(device, 8, 1)).chunk == core::defaults_on(device).chunk);
  options.threads = 40;
  options.chunk = 4096;
  options.direct = DirectIo::on;
  const io::ReaderOptions reader = reader_options(options, place(device, 8, 1));
  CHECK(reader.threads == 40);
  CHECK(reader.chunk == 4096);
  CHECK(reader.direct == DirectIo::on);
}

TEST_CASE("reader threads go where there is a CPU for each", "[reading]") {
  ReadingPlace here = place(DeviceKind::cuda, 16, 1);
  here.near = cpus(8, 8);
  SECTION("near the device") {
    here.bound = cpus(0, 1);
    CHECK(reader_cpus(here, 8) == here.near);
  }
  SECTION("else where the launcher has bound them") {
    CHECK(reader_cpus(here, 9).empty());
  }
  SECTION("else anywhere") {
    here.bound = cpus(0, 1);
    CHECK(reader_cpus(here, 9) == here.usable);
    CHECK(reader_cpus(here, 40) == here.usable);
  }
  SECTION("where the launcher's binding counts, there only") {
    here.near = {};
    here.bound = here.usable = cpus(3, 1);
    CHECK(reader_cpus(here, 8).empty());
  }
}

TEST_CASE("a host's threads stay where they were bound, a GPU's need not", "[reading]") {
  core::run_on({*core::allowed_cpus().begin()}, [] {
    CHECK(io::usable_cpus(DeviceKind::host) == core::allowed_cpus());
    CHECK(io::usable_cpus(DeviceKind::cuda) == core::permitted_cpus());
  });
}

TEST_CASE("the ring has two slots per thread, within its bytes", "[reading]") {
  const auto slots = [](std::uint64_t slot_bytes, unsigned threads) {
    return io::ring_slots({.threads = threads}, slot_bytes);
  };
  CHECK(slots(2 * mib, 4) == 8);
  CHECK(slots(2 * mib, 16) == 32);
  CHECK(slots(4 * mib, 16) == 16);
  CHECK(slots(2 * mib, 1024) == 32);
  CHECK(slots(64 * mib, 4) == 2);
  CHECK(slots(512 * mib, 4) == 2);
  CHECK(slots(0, 4) == 8);
}

TEST_CASE("io_uring has 256 MiB in flight, within the bytes of the ring", "[reading]") {
  CHECK(io::reads_in_flight(2 * mib) == 128);
  CHECK(io::reads_in_flight(512 * mib) == 16);
  CHECK(io::reads_in_flight(4096) == 4096);
  io::ReaderOptions options{.engine = IoEngine::uring, .chunk = 2 * mib};
  CHECK(io::ring_slots(options, 2 * mib) == 32);
  CHECK(io::ring_slots(options, mib / 2) == 128);
}

TEST_CASE("automatic mode reads directly unless most is cached, or too little is known",
          "[reading]") {
  CHECK(io::automatic_access(true, 100, 0).direct);
  CHECK(io::automatic_access(true, 100, 74).direct);
  CHECK_FALSE(io::automatic_access(true, 100, 75).direct);
  CHECK_FALSE(io::automatic_access(true, 100, 100).direct);
  CHECK(io::automatic_access(true, 1, 0).direct);
  CHECK_FALSE(io::automatic_access(true, 1, 1).direct);
  CHECK_FALSE(io::automatic_access(true, 100, {}).direct);
  CHECK_FALSE(io::automatic_access(false, 100, {}).direct);
}

TEST_CASE("automatic mode states its reasons", "[reading]") {
  CHECK(io::automatic_access(true, 100, 74).reason == "cold");
  CHECK(io::automatic_access(true, 100, 75).reason == "cached");
  CHECK(io::automatic_access(true, 100, {}).reason == "caching unknown");
  constexpr bool estimated = true;
  CHECK(io::automatic_access(true, 100, {}, estimated).reason == "caching unknown");
  CHECK(io::automatic_access(true, 100, 74, estimated).reason == "likely cold");
  CHECK(io::automatic_access(true, 100, 74, estimated).direct);
  CHECK(io::automatic_access(true, 100, 100, estimated).reason == "likely cached");
  CHECK(io::automatic_access(true, 100, 100).cached);
  CHECK_FALSE(io::automatic_access(true, 100, 100, estimated).cached);
}
