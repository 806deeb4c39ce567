// Replaces gpu_transport.cpp in a build without NCCL.
#include "safeshuffle/error.hpp"

#include "comm/gpu_transport.hpp"

namespace safeshuffle::comm {
namespace {

[[noreturn]] void fail() {
  throw ConfigError("several ranks with GPUs need NCCL: " + gpu_transport_obstacle());
}

}  // namespace

std::string gpu_transport_obstacle() {
  return "this safeshuffle was built without NCCL";
}

std::unique_ptr<Transport> make_gpu_transport(std::shared_ptr<Transport>,
                                              std::shared_ptr<device::Device>,
                                              std::chrono::milliseconds) {
  fail();
}

std::unique_ptr<Transport> make_gpu_transport(
    const Bootstrap&, const std::function<std::shared_ptr<device::Device>()>&) {
  fail();
}

}  // namespace safeshuffle::comm
