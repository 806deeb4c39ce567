#include "comm/gpu_transport.hpp"

#include <optional>
#include <string>
#include <utility>

#include "comm/agreement.hpp"
#include "comm/nccl_transport.hpp"
#include "comm/rendezvous.hpp"

namespace safeshuffle::comm {
namespace {

using SharedDevice = std::shared_ptr<device::Device>;

std::shared_ptr<device::CudaDevice> as_gpu(const SharedDevice& device) {
  if (device->as_cuda() == nullptr) throw ConfigError("NCCL needs a GPU");
  return {device, device->as_cuda()};
}

// Made by rank 0, told to all.
std::string common_id(Transport& control, std::chrono::milliseconds timeout) {
  const auto make = [&] { return control.rank() == 0 ? make_nccl_id() : std::string(); };
  return agree_on(control, timeout, make).front();
}

// Rank 0 gives up first, so that it can tell the others who is missing.
core::Deadline patience(const Bootstrap& bootstrap) {
  constexpr std::chrono::milliseconds notice{500};
  const core::Deadline own(bootstrap.timeout);
  return bootstrap.rank == 0 ? own : core::Deadline(own.limit() + notice);
}

std::shared_ptr<NcclGroup> begin_set_up(const std::string& id, std::uint32_t rank,
                                        std::uint32_t size, const device::CudaDevice& device) {
  return NcclGroup::create(id, rank, size, device.session()->shared_gpu());
}

}  // namespace

std::string gpu_transport_obstacle() {
  return {};
}

std::unique_ptr<Transport> make_gpu_transport(std::shared_ptr<Transport> control,
                                              SharedDevice device,
                                              std::chrono::milliseconds timeout) {
  const auto gpu = as_gpu(device);
  const std::string id = common_id(*control, timeout);
  std::unique_ptr<Transport> transport;
  agree_on(*control, timeout, [&] {
    NcclBuffers buffers(gpu, control->size(), false);
    auto group = begin_set_up(id, control->rank(), control->size(), *gpu);
    transport = make_nccl_transport(std::move(group), std::move(buffers), control);
    return std::string();
  });
  return transport;
}

std::unique_ptr<Transport> make_gpu_transport(const Bootstrap& bootstrap,
                                              const std::function<SharedDevice()>& open) {
  std::optional<NcclBuffers> buffers;
  const auto prepare = [&] {
    buffers.emplace(as_gpu(open()), bootstrap.size, true);
    return bootstrap.rank == 0 ? make_nccl_id() : std::string();
  };
  const std::string id = rendezvous(bootstrap, prepare, patience(bootstrap));
  auto group = begin_set_up(id, bootstrap.rank, bootstrap.size, *buffers->device);
  return make_nccl_transport(std::move(group), std::move(*buffers));
}

}  // namespace safeshuffle::comm
