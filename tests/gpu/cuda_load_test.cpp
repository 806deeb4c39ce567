// Loads of one rank onto a GPU.
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>

#include "safeshuffle/loader.hpp"

#include "device/device.hpp"
#include "support/catch.hpp"
#include "support/own_model.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

/// The device memory that is taken, by whomever.
std::size_t taken_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  cudaMemGetInfo(&free, &total);
  return total - free;
}

}  // namespace

TEST_CASE("random models arrive on one GPU byte for byte", "[gpu][load]") {
  const auto seed = GENERATE(range(0U, 12U));
  const OwnModel model(seed);
  PlanOptions options;
  options.window = seed % 3 == 0 ? 4096 : 65536;
  options.dtype = static_cast<DTypePolicy>(seed % 4);
  const Communicator comm = self(Device::cuda());
  const TensorSet loaded = load(model.plan(options), comm);
  CHECK(loaded.device() == DeviceKind::cuda);
  CHECK(loaded.report().ranks.front().peak_pinned_bytes > 0);
  CHECK(is_right(loaded, 0));
  CHECK_NOTHROW(verify(loaded, comm));
}

TEST_CASE("a chunk beyond what is read takes no memory", "[gpu][load]") {
  const OwnModel model(3);
  Options options;
  options.chunk = GENERATE(std::uint64_t{1} << 40, std::uint64_t{1} << 61, ~std::uint64_t{0});
  const TensorSet loaded = load(model.plan(), self(Device::cuda()), options);
  CHECK(is_right(loaded, 0));
  CHECK(loaded.report().ranks.front().peak_pinned_bytes < std::uint64_t{64} << 20);
}

TEST_CASE("20 loads leave no device memory behind", "[gpu][load]") {
  const OwnModel model(3);
  const auto load_and_drop = [&] {
    const Communicator comm = self(Device::cuda());
    const TensorSet loaded = load(model.plan(), comm);
    CHECK(is_right(loaded, 0));
  };
  load_and_drop();  // what CUDA takes once
  const std::size_t before = taken_bytes();
  for (int round = 0; round < 20; ++round) load_and_drop();
  // Others take device memory too, and the driver now and then more for itself.
  constexpr std::size_t least_leak = 20 * (std::size_t{3} << 20);  // the pack tables alone
  CHECK(taken_bytes() < before + least_leak / 2);
}

TEST_CASE("a model that does not fit is a MemoryError that names the bytes", "[gpu][load]") {
  const auto device = device::open_device(Device::cuda());
  try {
    device->allocate(std::uint64_t{1} << 50);
    FAIL("no exception");
  } catch (const MemoryError& error) {
    CHECK(error.record().cause.find("1125899906842624 bytes of memory of GPU 0") !=
          std::string::npos);
    CHECK(error.record().cause.find("are free") != std::string::npos);
  }
}
