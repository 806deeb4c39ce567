// The contracts of control and exchange on MPI, and what only several ranks can get wrong.
#include <chrono>
#include <signal.h>
#include <thread>
#include <unistd.h>

#include <mpi.h>

#include "comm/exchange/mpi_transport.hpp"
#include "contract/control_contract.hpp"
#include "contract/exchange_contract.hpp"
#include "device/host/host_device.hpp"
#include "support/mpi_world.hpp"
#include "support/test_queue.hpp"

using namespace safeshuffle;
using testing::world_rank;
using testing::world_size;

namespace {

/// The last rank stops as by SIGSTOP; the others run `meanwhile`; once all have, it goes on.
template <typename Function>
void with_last_rank_stopped(const Function& meanwhile) {
  const bool last = world_rank() + 1 == world_size();
  auto stopped = static_cast<long>(::getpid());
  MPI_Bcast(&stopped, 1, MPI_LONG, static_cast<int>(world_size()) - 1, MPI_COMM_WORLD);
  MPI_Comm others = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, last ? 1 : 0, 0, &others);
  if (last) {
    ::raise(SIGSTOP);
  } else {
    meanwhile();
    MPI_Barrier(others);
    if (world_rank() == 0) ::kill(static_cast<pid_t>(stopped), SIGCONT);
  }
  MPI_Comm_free(&others);
}

std::byte* as_bytes(std::string& text) {
  return reinterpret_cast<std::byte*>(text.data());
}

}  // namespace

TEST_CASE("the MPI control keeps the contract", "[comm][contract]") {
  const auto control = testing::make_world_control();
  CHECK(control->name() == "mpi");
  CHECK(control->rank() == world_rank());
  CHECK(control->size() == world_size());
  testing::check_control_contract(*control);
}

TEST_CASE("texts larger than a piece arrive whole over MPI", "[comm]") {
  const auto control = comm::make_mpi_control(testing::world_mpi_group(), 97);
  testing::gathers_texts_of_any_length(*control);
}

TEST_CASE("the MPI transport keeps the contract", "[comm][contract]") {
  // Tiny pieces cut every message.
  const auto piece = GENERATE(std::uint64_t{97}, std::uint64_t{1000}, comm::default_piece);
  const auto transport = comm::make_mpi_transport(testing::world_mpi_group(), piece);
  CHECK(transport->name() == "mpi");
  device::HostDevice device;
  testing::check_exchange_contract(*transport, testing::world_place(), device);
}

TEST_CASE("an exchange shows progress with every piece", "[comm]") {
  constexpr std::uint64_t piece = 1000;
  constexpr std::size_t pieces = 8;
  const core::Place place = testing::world_place();
  const auto transport = comm::make_mpi_transport(testing::world_mpi_group(), piece);
  std::vector<std::byte> sent(pieces * piece);
  std::vector<std::byte> received(pieces * piece);
  const std::uint32_t next = (place.rank + 1) % place.size;
  const std::uint32_t previous = (place.rank + place.size - 1) % place.size;
  comm::Exchange exchange;
  if (place.size > 1) {
    exchange.sends = {{next, sent.data(), sent.size()}};
    exchange.receives = {{previous, received.data(), received.size()}};
  }
  testing::TestQueue queue;
  const auto pending = transport->exchange(std::move(exchange), queue);
  CHECK(testing::finish(*pending));
  CHECK(pending->progress() >= (place.size > 1 ? 2 * pieces : 0));
}

TEST_CASE("nothing is sent while the queue is busy", "[comm]") {
  const auto transport = comm::make_mpi_transport(testing::world_mpi_group());
  device::HostDevice device;
  testing::TestQueue queue;
  queue.busy_polls = 1000;
  const testing::Wave wave(testing::world_place(), device);
  const auto pending = transport->exchange(wave.exchange(), queue);
  bool early = false;
  while (queue.busy_polls > 1) early |= pending->done();
  CHECK(testing::finish(*pending));
  CHECK_FALSE(early);
  CHECK(wave.arrived());
}

TEST_CASE("transports of one communicator do not mix their messages", "[comm]") {
  const auto one = comm::make_mpi_transport(testing::world_mpi_group());
  const auto two = comm::make_mpi_transport(testing::world_mpi_group());
  device::HostDevice device;
  testing::TestQueue queue;
  const testing::Wave first(testing::world_place(), device);
  const testing::Wave second(testing::world_place(), device);
  const auto pending_two = two->exchange(second.exchange(), queue);
  const auto pending_one = one->exchange(first.exchange(), queue);
  const bool finished = testing::finish(*pending_one) && testing::finish(*pending_two);
  CHECK(finished);
  CHECK(first.arrived());
  CHECK(second.arrived());
}

TEST_CASE("a communicator or a piece that is none is a ConfigError", "[comm]") {
  CHECK_THROWS_AS(comm::MpiGroup(MPI_COMM_NULL, testing::mpi_patience), ConfigError);
  const auto group = testing::world_mpi_group();
  CHECK_THROWS_AS(comm::make_mpi_transport(group, 0), ConfigError);
  CHECK_THROWS_AS(comm::make_mpi_transport(group, std::uint64_t{1} << 31), ConfigError);
}

TEST_CASE("the user's error handler is left as it was", "[comm]") {
  MPI_Errhandler before = MPI_ERRHANDLER_NULL;
  MPI_Errhandler after = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
  const auto transport = comm::make_mpi_transport(testing::world_mpi_group());
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &after);
  CHECK(before == after);
  MPI_Errhandler_free(&before);
  MPI_Errhandler_free(&after);
}

TEST_CASE("an MPI failure is a TransportError with MPI's own words", "[comm]") {
  const auto group = testing::world_mpi_group();
  const auto transport = comm::make_mpi_transport(group);
  testing::TestQueue queue;
  std::byte byte{};
  comm::Exchange exchange;
  exchange.receives = {{world_size() + 5, &byte, 1}};
  try {
    transport->exchange(std::move(exchange), queue);
    FAIL("no exception");
  } catch (const TransportError& error) {
    CHECK(error.record().code != 0);
    CHECK(error.record().cause.find("MPI_Irecv: ") == 0);
    CHECK(error.record().cause.size() > 15);
  }
  CHECK_THROWS_AS(comm::make_mpi_control(group)->all_gather("", testing::patience()),
                  TransportError);
}

TEST_CASE("a rank that does not answer is named in a TimeoutError", "[comm]") {
  if (world_size() == 1) return;
  const std::uint32_t last = world_size() - 1;
  const auto control = testing::make_world_control();
  std::optional<ErrorRecord> seen;
  double waited = 0;
  bool broken = false;
  with_last_rank_stopped([&] {
    const auto start = core::Clock::now();
    try {
      control->all_gather("", core::Deadline(std::chrono::milliseconds(500)));
    } catch (const TimeoutError& error) {
      seen = error.record();
    }
    waited = core::seconds_since(start);
    try {
      control->all_gather("again", testing::patience());
    } catch (const TransportError&) {
      broken = true;
    }
  });
  // Takes what the others sent before they gave up, so that MPI can be finalised in order; of empty
  // texts only the sizes travel.
  if (world_rank() == last) control->all_gather("", testing::patience());
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == last) return;
  REQUIRE(seen);
  CHECK(seen->rank == static_cast<std::int32_t>(last));
  CHECK(seen->cause == "gathering from all ranks: no answer within 0.5 s");
  CHECK(waited < 30);
  CHECK(broken);
}

TEST_CASE("an abandoned exchange keeps its memory and breaks the transport", "[comm]") {
  const auto group = testing::world_mpi_group();
  const auto transport = comm::make_mpi_transport(group);
  testing::TestQueue queue;
  queue.busy_polls = 1'000'000;  // so that nobody sends
  device::HostDevice device;
  auto memory = std::make_shared<testing::Wave>(testing::world_place(), device);
  const std::weak_ptr<testing::Wave> watch = memory;
  comm::Exchange exchange;  // only sends: none is in flight when it is abandoned
  exchange.sends = memory->exchange().sends;
  exchange.keep_alive = std::move(memory);
  auto pending = transport->exchange(std::move(exchange), queue);
  const bool done = pending->done();
  pending.reset();
  CHECK_FALSE(done);
  CHECK_FALSE(watch.expired());
  CHECK_THROWS_AS(comm::make_mpi_control(group)->all_gather("", testing::patience()),
                  TransportError);
  CHECK_THROWS_AS(transport->exchange({}, queue), TransportError);
}

TEST_CASE("a message above 2^31 bytes arrives", "[.][large]") {
  const std::uint64_t bytes = (std::uint64_t{1} << 31) + 4097;
  const auto transport = comm::make_mpi_transport(testing::world_mpi_group());
  const bool sender = world_rank() == 0;
  std::string data(bytes, sender ? 'x' : '?');
  if (sender) data.front() = data[bytes / 2] = data.back() = '!';
  comm::Exchange exchange;
  if (sender) exchange.sends = {{1, as_bytes(data), bytes}};
  if (!sender) exchange.receives = {{0, as_bytes(data), bytes}};
  testing::TestQueue queue;
  const auto pending = transport->exchange(std::move(exchange), queue);
  CHECK(testing::finish(*pending));
  CHECK(std::ranges::count(data, '!') == 3);
  CHECK(std::ranges::count(data, '?') == 0);
  CHECK(data.back() == '!');
}

TEST_CASE("a broadcast above 2^31 bytes arrives", "[.][large]") {
  const std::uint64_t bytes = (std::uint64_t{1} << 31) + 4097;
  const auto transport = comm::make_mpi_transport(testing::world_mpi_group());
  std::string data(bytes, world_rank() == 1 ? 'x' : '?');
  if (world_rank() == 1) data.back() = '!';
  comm::Exchange exchange;
  exchange.broadcasts = {{1, as_bytes(data), bytes}};
  testing::TestQueue queue;
  const auto pending = transport->exchange(std::move(exchange), queue);
  CHECK(testing::finish(*pending));
  CHECK(std::ranges::count(data, 'x') == static_cast<std::ptrdiff_t>(bytes - 1));
  CHECK(data.back() == '!');
}
