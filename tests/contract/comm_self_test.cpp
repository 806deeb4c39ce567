// The contracts of control and exchange on the group of one rank.
#include "contract/control_contract.hpp"
#include "contract/exchange_contract.hpp"
#include "device/host/host_device.hpp"

using namespace safeshuffle;

TEST_CASE("the self control keeps the contract", "[comm][contract]") {
  const auto control = comm::make_self_control();
  CHECK(control->name() == "self");
  CHECK(control->rank() == 0);
  CHECK(control->size() == 1);
  testing::check_control_contract(*control);
}

TEST_CASE("the self transport keeps the contract", "[comm][contract]") {
  const auto transport = comm::make_self_transport();
  CHECK(transport->name() == "self");
  device::HostDevice device;
  testing::check_exchange_contract(*transport, {.rank = 0, .size = 1}, device);
}
