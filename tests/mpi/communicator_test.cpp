// The public way from MPI to a communicator.
#include "safeshuffle/mpi.hpp"

#include "support/catch.hpp"

using namespace safeshuffle;

TEST_CASE("a communicator from MPI knows its group", "[comm]") {
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
