// Keeping probes, and finding them again.
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/probe.hpp"

#include "probe/place.hpp"
#include "support/catch.hpp"
#include "support/failure.hpp"
#include "support/temporary_directory.hpp"
#include "support/variable.hpp"

using namespace safeshuffle;
using testing::failure;
using testing::TemporaryDirectory;
using testing::Variable;

namespace {

Probe probe_of(const ProbePlace& place, double pack) {
  Probe probe;
  probe.date = "2026-11-22T00:00:00Z";
  probe.place = place;
  Measurement measurement;
  measurement.name = "pack";
  measurement.result = Spread{pack, pack, pack, 1};
  probe.measurements.push_back(measurement);
  return probe;
}

const ProbePlace here{"node-1", "ext4", "/dev/vda", "EPYC", 8, "host", 2, 1};

}  // namespace

TEST_CASE("a kept probe is found for its own place only, the last one", "[probe]") {
  const TemporaryDirectory directory;
  const std::string cache = directory / "new/probe";
  CHECK_FALSE(find_probe(here, cache));
  keep_probe(probe_of(here, 1e9), cache);
  const std::string path = keep_probe(probe_of(here, 2e9), cache);
  CHECK(path.starts_with(cache + "/node-1-"));
  const auto found = find_probe(here, cache);
  REQUIRE(found);
  CHECK(found->path == path);
  CHECK(found->date == "2026-11-22T00:00:00Z");
  CHECK(found->costs.pack == 2e9);

  const std::vector<std::function<void(ProbePlace&)>> differences{
      [](ProbePlace& other) { other.host += "x"; },
      [](ProbePlace& other) { other.filesystem += "x"; },
      [](ProbePlace& other) { other.filesystem_device += "x"; },
      [](ProbePlace& other) { other.cpu += "x"; },
      [](ProbePlace& other) { other.cpus = 4; },
      [](ProbePlace& other) { other.device += "x"; },
      [](ProbePlace& other) { other.ranks_per_node = 3; },
      [](ProbePlace& other) { other.nodes = 2; },
  };
  for (const auto& make_different : differences) {
    ProbePlace other = here;
    make_different(other);
    CHECK_FALSE(find_probe(other, cache));
    CHECK(keep_probe(probe_of(other, 1), cache) != path);
  }
  CHECK(find_probe(here, cache)->costs.pack == 2e9);
}

TEST_CASE("a kept probe that is another place's is not taken", "[probe]") {
  const TemporaryDirectory directory;
  ProbePlace other = here;
  other.host = "node-2";
  const std::string path = keep_probe(probe_of(here, 1), directory.path());
  std::filesystem::rename(keep_probe(probe_of(other, 1), directory.path()), path);
  CHECK_FALSE(find_probe(here, directory.path()));
}

TEST_CASE("a kept probe that is not valid is an error that names it", "[probe]") {
  const TemporaryDirectory directory;
  const std::string path = keep_probe(probe_of(here, 1), directory.path());
  std::filesystem::resize_file(path, 100);
  CHECK(failure<ConfigError>([&] { find_probe(here, directory.path()); }).file == path);
  std::filesystem::resize_file(path, 2 << 20);
  CHECK(failure<IoError>([&] { find_probe(here, directory.path()); }).file == path);
}

TEST_CASE("a probe that cannot be kept leaves nothing behind", "[probe]") {
  const TemporaryDirectory directory;
  directory.write("file", "x");
  CHECK_THROWS_AS(keep_probe(probe_of(here, 1), directory / "file/probe"), IoError);
  CHECK_FALSE(find_probe(here, directory / "file/probe"));
  CHECK(directory.names() == std::vector<std::string>{"file"});
}

TEST_CASE("host names of any kind make file names", "[probe]") {
  const TemporaryDirectory directory;
  ProbePlace place = here;
  place.host = "../a b\n" + std::string(300, 'x');
  const std::string path = keep_probe(probe_of(place, 1), directory.path());
  CHECK(std::filesystem::path(path).parent_path() == directory.path());
  CHECK(std::filesystem::path(path).filename().string().starts_with("___a_b_xxx"));
  CHECK(find_probe(place, directory.path()));
}

TEST_CASE("where probes are kept", "[probe]") {
  const Variable home("HOME", "/home/u");
  {
    const Variable cache("XDG_CACHE_HOME", "/cache");
    CHECK(probe_directory() == "/cache/safeshuffle/probe");
  }
  for (const char* unusable : {static_cast<const char*>(nullptr), "", "relative"}) {
    const Variable cache("XDG_CACHE_HOME", unusable);
    CHECK(probe_directory() == "/home/u/.cache/safeshuffle/probe");
    const Variable homeless("HOME", nullptr);
    CHECK(probe_directory().empty());
  }
}

TEST_CASE("GPUs of one model are one kind of device", "[probe]") {
  CHECK(probing::device_model("host") == "host");
  CHECK(probing::device_model("host (rank 0: no GPU at all)") == "host");
  CHECK(probing::device_model("NVIDIA H200 at 0000:1B:00.0") == "NVIDIA H200");
  CHECK(probing::device_model("A at B at 0000:1B:00.0") == "A at B");
}
