// The host device against the device contract.
#include "contract/device_contract.hpp"
#include "device/host/host_device.hpp"

using namespace safeshuffle;

TEST_CASE("the host device keeps the device contract", "[device]") {
  const std::size_t threads = GENERATE(1U, 3U);
  contract::check_device([=] { return std::make_shared<device::HostDevice>(threads); });
}

TEST_CASE("the host device opens by name and stages in place", "[device]") {
  const auto device = device::open_device(DeviceSpec::host());
  CHECK(device->kind() == DeviceKind::host);
  CHECK(device->description() == name(DeviceKind::host));

  const auto memory = device->allocate(100);
  const auto staging = device->make_staging(100, 1);
  CHECK(staging->acquire(memory.get(), 60).host.data() == memory.get());
  CHECK(staging->pinned_bytes() == 0);
}
