// The host device against the device contract.
#include <sched.h>

#include "contract/device_contract.hpp"
#include "device/host/host_device.hpp"

using namespace safeshuffle;

TEST_CASE("the host device keeps the device contract", "[device]") {
  const std::size_t threads = GENERATE(1U, 3U);
  contract::check_device([=] { return std::make_shared<device::HostDevice>(threads); });
}

TEST_CASE("the host device opens by name and stages in place", "[device]") {
  const auto device = device::open_device(Device::host());
  CHECK(device->kind() == DeviceKind::host);
  CHECK(device->description() == name(DeviceKind::host));

  const auto memory = device->allocate(100);
  const auto staging = device->make_staging(100, 1);
  CHECK(staging->try_acquire(memory.get(), 60, 0)->host.data() == memory.get());
  CHECK(staging->pinned_bytes() == 0);
}

TEST_CASE("the host device uses no more threads than the cores it may run on", "[device]") {
  CHECK(device::HostDevice::default_threads() >= 1);
  CHECK(device::HostDevice::default_threads() <= 4);

  std::size_t on_one_core = 0;
  std::thread pinned([&] {  // a thread of its own, so that nothing else is pinned
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(static_cast<std::size_t>(sched_getcpu()), &core);
    sched_setaffinity(0, sizeof core, &core);
    on_one_core = device::HostDevice::default_threads();
  });
  pinned.join();
  CHECK(on_one_core == 1);
}
