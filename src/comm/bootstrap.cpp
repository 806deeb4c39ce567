#include "safeshuffle/bootstrap.hpp"

#include <memory>
#include <string>

#include "safeshuffle/error.hpp"

#include "comm/control/tcp_control.hpp"
#include "comm/exchange/transport.hpp"
#include "comm/gpu_transport.hpp"
#include "comm/no_transport.hpp"
#include "comm/open_together.hpp"
#include "core/launcher.hpp"

namespace safeshuffle {
namespace {

void check(const Bootstrap& bootstrap) {
  if (bootstrap.rank < bootstrap.size) return;
  throw ConfigError("rank " + std::to_string(bootstrap.rank) + " is out of range for a group of " +
                    std::to_string(bootstrap.size) + " ranks");
}

std::shared_ptr<comm::Control> join(const Bootstrap& self) {
  if (self.all_gather) {
    return comm::make_callers_control(self.rank, self.size, self.all_gather);
  }
  return comm::make_tcp_control({self.rank, self.size, self.address}, self.timeout);
}

}  // namespace

Bootstrap Bootstrap::from_environment() {
  const core::Place place = core::launched_place();
  return {.rank = place.rank,
          .size = place.size,
          .local_rank = place.local_rank,
          .address = place.size > 1 ? core::rendezvous_address() : std::string()};
}

Communicator from_bootstrap(const Bootstrap& bootstrap, Device device) {
  check(bootstrap);
  if (bootstrap.size == 1) {
    return {comm::make_self_control(), comm::make_self_transport(),
            device::open_device(device, bootstrap.local_rank)};
  }
  const auto control = join(bootstrap);
  auto opened = comm::open_together(*control, device, bootstrap.local_rank, bootstrap.timeout);
  auto transport = opened->kind() == DeviceKind::host
                       ? comm::make_no_transport(control)
                       : comm::make_gpu_transport(*control, opened, bootstrap.timeout);
  return {control, std::move(transport), std::move(opened)};
}

}  // namespace safeshuffle
