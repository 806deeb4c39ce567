// The transport contract on the group of one rank.
#include "contract/transport_contract.hpp"
#include "device/host/host_device.hpp"

using namespace safeshuffle;

TEST_CASE("the self transport keeps the contract", "[comm][contract]") {
  const auto transport = comm::make_self_transport();
  CHECK(transport->name() == "self");
  CHECK(transport->rank() == 0);
  CHECK(transport->size() == 1);
  device::HostDevice device;
  testing::check_transport_contract(*transport, device);
}
