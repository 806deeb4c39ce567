// The public way from MPI to a communicator.
#include "safeshuffle/mpi.hpp"

#include "device/device.hpp"
#include "support/catch.hpp"
#include "support/mpi_world.hpp"

using namespace safeshuffle;

TEST_CASE("a communicator from MPI knows its group", "[comm][host]") {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const Communicator communicator = from_mpi(MPI_COMM_WORLD);
  CHECK(communicator.rank() == static_cast<std::uint32_t>(rank));
  CHECK(communicator.size() == static_cast<std::uint32_t>(size));
  CHECK(communicator.device() == DeviceKind::host);
  CHECK(communicator.transport_name() == "mpi");
}

TEST_CASE("without a GPU for each rank, automatic is the host, and says why", "[comm][host]") {
  const Communicator communicator = from_mpi(MPI_COMM_WORLD, Device::automatic());
  CHECK(communicator.device() == DeviceKind::host);
  CHECK(communicator.device_handle()->description().find("host (rank 0: ") == 0);
}

TEST_CASE("a GPU that is not there is an error on all ranks", "[comm][host]") {
  const auto error = testing::common_error([] { from_mpi(MPI_COMM_WORLD, Device::cuda()); });
  REQUIRE(error);
  CHECK(error->rank == 0);
  CHECK_FALSE(error->cause.empty());
}
