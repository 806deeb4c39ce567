#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "safeshuffle/nccl.hpp"

#include "comm/await.hpp"
#include "comm/control/interfaces.hpp"
#include "comm/control/tcp_control.hpp"
#include "comm/exchange/nccl_call.hpp"
#include "comm/exchange/nccl_library.hpp"
#include "comm/exchange/nccl_operation.hpp"
#include "comm/exchange/nccl_transport.hpp"
#include "core/error_wire.hpp"
#include "core/random.hpp"
#include "core/text.hpp"
#include "core/wire.hpp"

namespace safeshuffle {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string url_of(const comm::Interface& interface, std::uint16_t port) {
  const std::string host = interface.is_ipv6 ? "[" + interface.address + "]" : interface.address;
  return "tcp://" + host + ":" + std::to_string(port);
}

/// Opens `listener` and returns its address, with a token that keeps strangers out.
std::string listen(std::optional<comm::Socket>& listener) {
  const comm::Interface interface = comm::choose_interface(
      comm::usable_interfaces(), variable("NCCL_SOCKET_IFNAME"), variable("NCCL_SOCKET_FAMILY"));
  listener = comm::listen_on(interface.address);
  const std::string token = core::hexadecimal(core::random_bytes(16));
  return url_of(interface, listener->port()) + "/" + token;
}

/// What rank 0 tells the others: an empty text and the address, or why there is none.
std::string invite(std::optional<comm::Socket>& listener) {
  std::string obstacle;
  std::string address;
  try {
    address = listen(listener);
  } catch (...) {
    ErrorRecord error = core::current_error();
    error.rank = 0;
    error.cause = core::shortened(error.cause, 512);
    obstacle = core::encode(error);
  }
  return core::to_wire(std::tie(obstacle, address));
}

/// Sends rank 0's text to all: the only use of the communicator other than for data.
std::string share(const std::string& mine, comm::Transport& transport, device::CudaDevice& device,
                  std::chrono::milliseconds timeout) {
  constexpr std::uint64_t bytes = 1024;
  const auto memory = device.allocate(bytes);
  const auto queue = device.make_queue();
  const auto pinned = device::allocate_pinned(device.session(), bytes);
  auto* const text = reinterpret_cast<char*>(pinned.get());
  if (!mine.empty()) {
    const device::GpuScope scope(device.session()->gpu());
    mine.copy(text, bytes);
    comm::enqueue_copy(memory.get(), pinned.get(), bytes, *queue);
  }
  comm::Exchange exchange;
  exchange.broadcasts = {{0, memory.get(), bytes}};
  exchange.keep_alive = memory;
  const auto pending = transport.exchange(std::move(exchange), *queue);
  const auto nobody = comm::make_self_control();  // no control yet that could name a lost rank
  comm::await(*pending, *nobody, "sharing an address over NCCL", timeout, [] {});
  device.copy_to_host(pinned.get(), memory.get(), bytes);
  return {text, bytes};
}

/// A rank that cannot connect does not learn who else cannot: so that all throw the same, they say
/// only what all know.
std::shared_ptr<comm::Control> connect(const comm::Member& self,
                                       std::optional<comm::Socket> listener,
                                       std::chrono::milliseconds timeout) {
  try {
    return comm::make_tcp_control(self, timeout, std::move(listener));
  } catch (const TimeoutError&) {
    const std::string visible = self.address.substr(0, self.address.rfind('/'));
    throw TimeoutError("not all ranks could connect to rank 0 at " + visible + " within " +
                       core::seconds_text(timeout) +
                       "; set NCCL_SOCKET_IFNAME to an interface at which they can");
  }
}

std::shared_ptr<comm::Control> make_control(const comm::NcclGroup& group,
                                            comm::Transport& transport, device::CudaDevice& device,
                                            std::chrono::milliseconds timeout) {
  if (group.size() == 1) return comm::make_self_control();
  std::optional<comm::Socket> listener;
  const std::string mine = group.rank() == 0 ? invite(listener) : std::string();
  const std::string told = share(mine, transport, device, timeout);
  core::WireReader in(told);
  const std::string obstacle = in.text();
  if (!obstacle.empty()) raise(core::decode_error(obstacle));
  return connect({group.rank(), group.size(), in.text()}, std::move(listener), timeout);
}

}  // namespace

Communicator borrow(ncclComm_t comm, cudaStream_t stream, std::chrono::milliseconds timeout) {
  if (comm == nullptr) throw ConfigError("the NCCL communicator is null");
  if (!comm::is_ready(comm)) {
    throw ConfigError("the NCCL communicator has an operation in progress");
  }
  int ordinal = 0;
  comm::check_nccl(comm::nccl().comm_cu_device(comm, &ordinal), "ncclCommCuDevice", comm);
  const auto device = std::make_shared<device::CudaDevice>(ordinal, stream);
  const auto group = comm::NcclGroup::borrow(comm, device->session()->shared_gpu());
  auto transport = comm::make_nccl_transport(group, comm::NcclBuffers(device, group->size()));
  auto control = make_control(*group, *transport, *device, timeout);
  return {std::move(control), std::move(transport), device};
}

}  // namespace safeshuffle
