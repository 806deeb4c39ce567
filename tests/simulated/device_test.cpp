// What only a simulated GPU tells: where contexts are, what is given back, how faults end.
#include "device/device.hpp"

#include <thread>

#include "safeshuffle/loader.hpp"

#include "support/catch.hpp"
#include "support/model_files.hpp"
#include "support/simulated_gpu/inspect.hpp"
#include "support/temporary_directory.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

/// A model of one rank in files.
struct Model {
  Model() {
    const test::RandomModel made = test::random_model(3);
    write_model(directory.path().string(), made.catalog, 3);
    catalog = open_checkpoint(directory.path().string()).catalog;
    placements = placements_for(catalog, made);
  }

  TensorSet load_onto(Device device) const {
    PlanOptions options;
    options.window = 8192;
    return load(make_plan(catalog, placements, 1, options), self(device));
  }

  support::TemporaryDirectory directory;
  Catalog catalog;
  std::vector<Placement> placements;
};

struct Resources {
  std::uint64_t device_bytes = simulated_gpu::device_bytes(0);
  std::uint64_t pinned_bytes = simulated_gpu::pinned_bytes();
  std::size_t streams = simulated_gpu::live_streams();
  std::size_t events = simulated_gpu::live_events();

  bool operator==(const Resources&) const = default;
};

}  // namespace

TEST_CASE("a load has a context on its own GPU only, whatever thread it runs on",
          "[.][one of two]") {
  const Model model;
  bool right = false;
  std::thread([&] { right = is_right(model.load_onto(Device::cuda(1)), 0); }).join();
  CHECK(right);
  CHECK(simulated_gpu::devices_with_context() == std::vector<int>{1});
}

TEST_CASE("loads give back all they took", "[gpu][load]") {
  const Model model;
  const Resources before;
  {
    const TensorSet loaded = model.load_onto(Device::cuda());
    CHECK(simulated_gpu::device_bytes(0) > before.device_bytes);
    CHECK(simulated_gpu::pinned_bytes() == before.pinned_bytes);
  }
  CHECK(Resources() == before);
  CHECK(simulated_gpu::violations().empty());
}

TEST_CASE("a GPU that fails ends a load with a TransportError", "[.][fault]") {
  const Model model;
  try {
    const TensorSet loaded = model.load_onto(Device::cuda());
    FAIL("no exception");
  } catch (const TransportError& error) {
    CHECK(error.record().cause.find("cudaErrorIllegalAddress") != std::string::npos);
  }
}
