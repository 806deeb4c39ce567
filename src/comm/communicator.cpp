#include "safeshuffle/communicator.hpp"

#include <utility>

#include "comm/transport.hpp"
#include "device/device.hpp"

namespace safeshuffle {

Communicator::Communicator(std::shared_ptr<comm::Transport> transport,
                           std::shared_ptr<device::Device> device)
    : transport_(std::move(transport)), device_(std::move(device)) {}

std::uint32_t Communicator::rank() const noexcept {
  return transport_->rank();
}

std::uint32_t Communicator::size() const noexcept {
  return transport_->size();
}

DeviceKind Communicator::device() const noexcept {
  return device_->kind();
}

std::string Communicator::transport_name() const {
  return transport_->name();
}

Communicator self(Device device) {
  return {comm::make_self_transport(), device::open_device(device)};
}

}  // namespace safeshuffle
