#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "safeshuffle/mpi.hpp"

#include "comm/agreement.hpp"
#include "comm/gpu_transport.hpp"
#include "comm/mpi_transport.hpp"
#include "comm/open_together.hpp"
#include "core/process.hpp"

namespace safeshuffle {
namespace {

// This rank's position among those on its node.
std::uint32_t local_rank(comm::Transport& mpi, std::chrono::milliseconds timeout) {
  const auto nodes = comm::agree_on(mpi, timeout, core::node_id);
  const auto own = nodes.begin() + mpi.rank();
  return static_cast<std::uint32_t>(std::count(nodes.begin(), own, *own));
}

// MPI itself cannot be relied on to move device memory.
std::unique_ptr<comm::Transport> transport_for(std::unique_ptr<comm::Transport> mpi,
                                               const std::shared_ptr<device::Device>& device,
                                               std::chrono::milliseconds timeout) {
  if (device->kind() == DeviceKind::host) return mpi;
  if (mpi->size() == 1) return comm::make_self_transport();
  return comm::make_gpu_transport(std::move(mpi), device, timeout);
}

}  // namespace

Communicator from_mpi(MPI_Comm comm, Device device, std::chrono::milliseconds timeout) {
  auto mpi = comm::make_mpi_transport(comm, timeout);
  auto opened = comm::open_together(*mpi, device, local_rank(*mpi, timeout), timeout);
  auto transport = transport_for(std::move(mpi), opened, timeout);
  return {std::move(transport), std::move(opened)};
}

}  // namespace safeshuffle
