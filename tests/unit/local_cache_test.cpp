#include "source/local_cache.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "support/catch.hpp"
#include "support/temporary_directory.hpp"
#include "support/wrapped_files.hpp"

using namespace safeshuffle;

namespace {

const std::string host = "https://host/";

/// The files of a directory, as objects of a server.
class Served final : public testing::WrappedFiles {
 public:
  explicit Served(std::filesystem::path directory) : directory_(std::move(directory)) {}

  bool is_remote(const std::string&) const override { return true; }
  core::FileIdentity identify(const std::string& path) const override {
    return files_.identify(file(path));
  }
  std::unique_ptr<source::Handle> open(const std::string& path,
                                       source::Access access) const override {
    return files_.open(file(path), access);
  }

 private:
  std::string file(const std::string& path) const {
    return (directory_ / path.substr(host.size())).string();
  }

  const std::filesystem::path directory_;
};

}  // namespace

TEST_CASE("a bound on the cache spares what another start has chosen to read", "[source]") {
  const testing::TemporaryDirectory served;
  const testing::TemporaryDirectory cache;
  served.write("first", "1");
  served.write("second", "2");
  const auto start = [&](std::uint64_t most_bytes) {
    return source::make_local_cache(std::make_unique<Served>(served.path()), cache.path().string(),
                                    most_bytes);
  };
  const auto fetch = [&](const std::string& name, std::uint64_t most_bytes) {
    source::read_text(*start(most_bytes), host + name, 1);
  };
  fetch("first", 0);
  auto reader = start(0);
  const std::string chosen = reader->local({host + "first"}).front();
  REQUIRE(chosen != host + "first");
  fetch("second", 1);
  CHECK(source::read_text(source::files(), chosen, 1) == "1");
  reader.reset();
  fetch("second", 1);
  CHECK_FALSE(std::filesystem::exists(chosen));
}
