#include "safeshuffle/nccl.hpp"

#include "comm/nccl_call.hpp"
#include "comm/nccl_transport.hpp"

namespace safeshuffle {

Communicator borrow(ncclComm_t comm, cudaStream_t stream) {
  if (comm == nullptr) throw ConfigError("the NCCL communicator is null");
  if (!comm::is_ready(comm)) {
    throw ConfigError("the NCCL communicator has an operation in progress");
  }
  int ordinal = 0;
  comm::check_nccl(ncclCommCuDevice(comm, &ordinal), "ncclCommCuDevice", comm);
  const auto device = std::make_shared<device::CudaDevice>(ordinal, stream);
  auto group = comm::NcclGroup::borrow(comm, device->session()->shared_gpu());
  comm::NcclBuffers buffers(device, group->size(), true);
  return {comm::make_nccl_transport(std::move(group), std::move(buffers)), device};
}

}  // namespace safeshuffle
