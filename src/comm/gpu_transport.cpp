#include "comm/gpu_transport.hpp"

#include "safeshuffle/error.hpp"

#include "comm/control/agreement.hpp"
#include "comm/exchange/nccl_library.hpp"
#include "comm/exchange/nccl_transport.hpp"

namespace safeshuffle::comm {
namespace {

std::shared_ptr<device::CudaDevice> as_gpu(const std::shared_ptr<device::Device>& device) {
  if (device->as_cuda() == nullptr) throw ConfigError("NCCL needs a GPU");
  return {device, device->as_cuda()};
}

// Made by rank 0, told to all.
std::string common_id(Control& control, std::chrono::milliseconds timeout) {
  const auto make = [&] { return control.rank() == 0 ? make_nccl_id() : std::string(); };
  return agree_on(control, timeout, make).front();
}

}  // namespace

std::string gpu_transport_obstacle() try {
  nccl();
  return {};
} catch (const ConfigError& error) {
  return error.record().cause;
}

std::unique_ptr<Transport> make_gpu_transport(Control& control,
                                              const std::shared_ptr<device::Device>& device,
                                              std::chrono::milliseconds timeout) {
  const auto gpu = as_gpu(device);
  const std::string id = common_id(control, timeout);
  std::unique_ptr<Transport> transport;
  agree_on(control, timeout, [&] {
    NcclBuffers buffers(gpu, control.size());
    auto group =
        NcclGroup::create(id, control.rank(), control.size(), gpu->session()->shared_gpu());
    transport = make_nccl_transport(std::move(group), std::move(buffers));
    return std::string();
  });
  return transport;
}

}  // namespace safeshuffle::comm
