// GPUDirect Storage where there is no GPU.
#include <string>
#include <vector>

#include "safeshuffle/loader.hpp"

#include "support/catch.hpp"
#include "support/own_model.hpp"

using namespace safeshuffle;

TEST_CASE("on the host, threads read, which is a fallback", "[gds]") {
  const testing::OwnModel model(3);
  Options options;
  options.io = IoEngine::gds;
  const TensorSet loaded = load(model.plan(), self(Device::host()), options);
  CHECK(testing::is_right(loaded, 0));
  const RankReport& rank = loaded.report().ranks[0];
  CHECK(rank.io_path.starts_with("posix "));
  CHECK(rank.gds_bytes == 0);
  CHECK(rank.fallbacks ==
        std::vector<std::string>{"gds fell back to posix: the device is not a GPU"});
  options.strict = true;
  CHECK_THROWS_AS(load(model.plan(), self(Device::host()), options), FallbackError);
}
