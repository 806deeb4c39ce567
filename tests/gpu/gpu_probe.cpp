// Whether this machine has a GPU that works, and with TEST_NEEDS=gds in the environment, cuFile:
// exit status 0, or 77 (skipped) and why not.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "safeshuffle/error.hpp"

#include "device/device.hpp"

using namespace safeshuffle;

namespace {

std::string gds_obstacle() {
  try {
    device::open_device(Device::cuda())->make_staging(4096, 1)->make_device_reads({});
    return {};
  } catch (const Error& error) {
    return error.record().cause;
  }
}

}  // namespace

int main() {
  std::string obstacle = device::gpu_obstacle();
  const char* const needs = std::getenv("TEST_NEEDS");
  const bool needs_gds = needs != nullptr && std::string_view(needs) == "gds";
  if (obstacle.empty() && needs_gds) obstacle = gds_obstacle();
  if (obstacle.empty()) return 0;
  std::puts(obstacle.c_str());
  return 77;
}
