#include "safeshuffle/communicator.hpp"

#include <utility>

#include "comm/control/control.hpp"
#include "comm/exchange/transport.hpp"
#include "device/device.hpp"

namespace safeshuffle {

Communicator::Communicator(std::shared_ptr<comm::Control> control,
                           std::shared_ptr<comm::Transport> transport,
                           std::shared_ptr<device::Device> device)
    : control_(std::move(control)), transport_(std::move(transport)), device_(std::move(device)) {}

std::uint32_t Communicator::rank() const noexcept {
  return control_->rank();
}

std::uint32_t Communicator::size() const noexcept {
  return control_->size();
}

DeviceKind Communicator::device() const noexcept {
  return device_->kind();
}

std::string Communicator::transport_name() const {
  const std::string data = transport_->name();
  const std::string control = control_->name();
  return control == data || control == "self" ? data : data + "+" + control;
}

Communicator self(Device device) {
  return {comm::make_self_control(), comm::make_self_transport(), device::open_device(device)};
}

}  // namespace safeshuffle
