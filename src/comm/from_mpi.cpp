#include <utility>

#include "safeshuffle/mpi.hpp"
#include "safeshuffle/options.hpp"

#include "comm/agreement.hpp"
#include "comm/mpi_transport.hpp"
#include "device/device.hpp"

namespace safeshuffle {

Communicator from_mpi(MPI_Comm comm, Device device) {
  auto transport = comm::make_mpi_transport(comm);
  std::shared_ptr<device::Device> opened;
  comm::agree_on(*transport, core::Deadline(Options{}.timeout), [&] {
    opened = device::open_device(device);
    return std::string();
  });
  return {std::move(transport), std::move(opened)};
}

}  // namespace safeshuffle
