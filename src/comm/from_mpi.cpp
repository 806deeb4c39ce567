#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "safeshuffle/mpi.hpp"

#include "comm/control/agreement.hpp"
#include "comm/control/mpi_control.hpp"
#include "comm/exchange/mpi_transport.hpp"
#include "comm/gpu_transport.hpp"
#include "comm/open_together.hpp"
#include "core/process.hpp"

namespace safeshuffle {
namespace {

// This rank's position among those on its node.
std::uint32_t local_rank(comm::Control& mpi, std::chrono::milliseconds timeout) {
  const auto nodes = comm::agree_on(mpi, timeout, core::node_id);
  const auto own = nodes.begin() + mpi.rank();
  return static_cast<std::uint32_t>(std::count(nodes.begin(), own, *own));
}

}  // namespace

Communicator from_mpi(MPI_Comm comm, Device device, std::chrono::milliseconds timeout) {
  const auto group = std::make_shared<comm::MpiGroup>(comm, timeout);
  std::shared_ptr<comm::Control> control = comm::make_mpi_control(group);
  auto opened = comm::open_together(*control, device, local_rank(*control, timeout), timeout);
  if (opened->kind() == DeviceKind::host) {
    return {std::move(control), comm::make_mpi_transport(group), std::move(opened)};
  }
  if (group->size() == 1) {
    return {comm::make_self_control(), comm::make_self_transport(), std::move(opened)};
  }
  // MPI itself cannot be relied on to move device memory.
  auto transport = comm::make_gpu_transport(*control, opened, timeout);
  return {std::move(control), std::move(transport), std::move(opened)};
}

}  // namespace safeshuffle
