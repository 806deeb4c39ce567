// Replaces gpu_transport.cpp in a build without NCCL.
#include "safeshuffle/error.hpp"

#include "comm/gpu_transport.hpp"

namespace safeshuffle::comm {

std::string gpu_transport_obstacle() {
  return "this safeshuffle was built without NCCL";
}

std::unique_ptr<Transport> make_gpu_transport(Control&, const std::shared_ptr<device::Device>&,
                                              std::chrono::milliseconds) {
  throw ConfigError("several ranks with GPUs need NCCL: " + gpu_transport_obstacle());
}

}  // namespace safeshuffle::comm
