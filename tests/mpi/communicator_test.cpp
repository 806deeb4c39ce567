// The public way from MPI to a communicator.
#include <string>
#include <thread>
#include <vector>

#include "safeshuffle/loader.hpp"
#include "safeshuffle/mpi.hpp"

#include "device/device.hpp"
#include "support/catch.hpp"
#include "support/group.hpp"
#include "support/mpi_world.hpp"
#include "support/shared_model.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

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

TEST_CASE("over MPI, too, a second call is refused, and the first goes on", "[comm]") {
  const SharedModel model(plain_model(2 * world_size()));
  const Communicator& comm = shared_group();
  const Plan plan = model.plan(with_window(4096));
  std::vector<std::string> refusals;
  Options options;
  options.on_progress = [&](const Progress&) {
    const auto second_call = [&, copy = comm] {
      try {
        load(plan, copy);
      } catch (const ConfigError& error) {
        refusals.push_back(error.record().cause);
      }
    };
    second_call();
    std::thread(second_call).join();
  };
  const TensorSet loaded = load(plan, comm, options);
  const bool right = is_right(loaded, comm.rank());
  verify(loaded, comm);
  CHECK(right);
  REQUIRE(refusals.size() >= 2 * plan.waves());
  for (const std::string& cause : refusals) {
    CHECK(cause.find("the communicator has another operation in progress") == 0);
  }
}

TEST_CASE("a thread that may not call MPI is refused, and the group still works", "[comm][host]") {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (level > MPI_THREAD_FUNNELED) return;
  const SharedModel model(plain_model(2));
  const Communicator& comm = shared_group();
  const Plan plan = model.plan();
  bool call_refused = false;
  bool group_refused = false;
  std::thread([&] {
    const auto is_refused = [](const auto& call) {
      try {
        call();
      } catch (const ConfigError& error) {
        return error.record().cause.find("MPI_THREAD_SERIALIZED") != std::string::npos;
      }
      return false;
    };
    call_refused = is_refused([&] { load(plan, comm); });
    group_refused = is_refused([] { from_mpi(MPI_COMM_WORLD); });
  }).join();
  const bool right = is_right(load(plan, comm), comm.rank());
  CHECK(call_refused);
  CHECK(group_refused);
  CHECK(right);
}
