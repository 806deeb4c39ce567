// The contract of control without MPI: over TCP, and with an all-gather of the caller. MPI starts
// the ranks and tells them the address.
#include <stdexcept>

#include "safeshuffle/bootstrap.hpp"
#include "safeshuffle/loader.hpp"

#include "comm/control/tcp_control.hpp"
#include "contract/control_contract.hpp"
#include "support/shared_model.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

/// Collective.
std::unique_ptr<comm::Control> make_world_tcp_control() {
  std::optional<comm::Socket> listener;
  std::string address;
  if (world_rank() == 0) {
    listener = comm::listen_on("127.0.0.1");
    address = "tcp://127.0.0.1:" + std::to_string(listener->port());
  }
  address = gather_texts(address).front();
  return comm::make_tcp_control({world_rank(), world_size(), address}, mpi_patience,
                                std::move(listener));
}

}  // namespace

TEST_CASE("the TCP control keeps the contract", "[comm][contract]") {
  const auto control = make_world_tcp_control();
  CHECK(control->name() == "tcp");
  CHECK(control->rank() == world_rank());
  CHECK(control->size() == world_size());
  gathers_texts_of_any_length(*control, 700'000);
  // The rest takes seconds, and needs two ranks to which rank 0 passes texts on.
  if (world_size() == 3) check_control_contract(*control);
}

TEST_CASE("the caller's all-gather keeps the contract", "[comm][contract]") {
  const auto callers = make_world_control();
  const AllGather gather = [&](const std::string& mine, std::chrono::milliseconds timeout) {
    return callers->all_gather(mine, core::Deadline(timeout));
  };
  const auto control = comm::make_callers_control(world_rank(), world_size(), gather);
  CHECK(control->name() == "caller");
  if (world_size() == 2) check_control_contract(*control);  // takes seconds
}

TEST_CASE("what the caller's all-gather throws is thrown, and it is not called again", "[comm]") {
  int calls = 0;
  const auto fail = [&](const std::string&, std::chrono::milliseconds) -> std::vector<std::string> {
    if (++calls == 1) throw std::runtime_error("no network");
    throw TimeoutError(ErrorRecord{.rank = 3});
  };
  for (const auto* const what : {"the caller's all-gather: no network", ""}) {
    const auto control = comm::make_callers_control(0, 4, fail);
    ErrorRecord seen;
    try {
      control->all_gather("", control_patience());
    } catch (const Error& error) {
      seen = error.record();
    }
    CHECK(seen.cause == what);
    CHECK(seen.rank == (calls == 1 ? -1 : 3));
    CHECK_THROWS_AS(control->all_gather("", control_patience()), TransportError);
  }
  CHECK(calls == 2);
}

TEST_CASE("a caller's all-gather that leaves ranks out is a TransportError", "[comm]") {
  const auto one = [](const std::string& mine, std::chrono::milliseconds) {
    return std::vector<std::string>{mine};
  };
  const auto control = comm::make_callers_control(0, 2, one);
  CHECK_THROWS_AS(control->all_gather("", control_patience()), TransportError);
}

TEST_CASE("a load that a false text ends is a TransportError", "[comm]") {
  const auto callers = make_world_control();
  Bootstrap self{.rank = world_rank(), .size = world_size()};
  self.all_gather = [&](const std::string& mine, std::chrono::milliseconds timeout) {
    auto all = callers->all_gather(mine, core::Deadline(timeout));
    if (mine.size() == 1) all.front() = std::string(1, '\0');  // where votes go, rank 0 has failed
    return all;
  };
  const Communicator comm = from_bootstrap(self, Device::host());
  if (world_size() == 1) return;  // asks nobody
  const SharedModel model(plain_model(3));
  PlanOptions options;
  options.assignment = Assignment::sliced;
  CHECK_THROWS_AS(load(model.plan(options), comm), TransportError);
}

TEST_CASE("a group that meets otherwise loads as one of MPI", "[comm][.][nccl]") {
  const auto callers = make_world_control();
  Bootstrap self{.rank = world_rank(), .size = world_size(), .local_rank = world_rank()};
  self.all_gather = [&](const std::string& mine, std::chrono::milliseconds timeout) {
    return callers->all_gather(mine, core::Deadline(timeout));
  };
  const Communicator comm = from_bootstrap(self, Device::cuda(0));
  CHECK(comm.transport_name() == (world_size() == 1 ? "self" : "nccl+caller"));
  const SharedModel model(plain_model(3));
  const bool right = is_right(load(model.plan(), comm), comm.rank());
  CHECK(right);
}

TEST_CASE("a rank outside its group is a ConfigError", "[comm]") {
  CHECK_THROWS_AS(from_bootstrap({.rank = 2, .size = 2}), ConfigError);
  CHECK_THROWS_AS(from_bootstrap({.rank = 0, .size = 0}), ConfigError);
}
