// comm: what becomes of control messages over TCP if ranks stop or die, and of strangers. The
// contract is tested by ranks that are processes, in tests/mpi.
#include "comm/control/tcp_control.hpp"

#include <csignal>
#include <future>
#include <memory>
#include <poll.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "comm/control/tcp_protocol.hpp"
#include "core/error_wire.hpp"
#include "core/wire.hpp"
#include "support/catch.hpp"

using namespace safeshuffle;
using namespace std::chrono_literals;

namespace {

std::string address_of(const comm::Socket& listener) {
  return "tcp://127.0.0.1:" + std::to_string(listener.port()) + "/token";
}

/// The controls of the first `present` ranks of one group, in this process.
std::vector<std::unique_ptr<comm::Control>> join(comm::Socket listener, std::uint32_t present,
                                                 std::uint32_t size) {
  const std::string address = address_of(listener);
  std::vector<std::future<std::unique_ptr<comm::Control>>> joining;
  for (std::uint32_t rank = 1; rank < present; ++rank) {
    joining.push_back(std::async(std::launch::async, [=] {
      return comm::make_tcp_control({rank, size, address}, 20s);
    }));
  }
  std::vector<std::unique_ptr<comm::Control>> group;
  group.push_back(comm::make_tcp_control({0, size, address}, 20s, std::move(listener)));
  for (auto& rank : joining) group.push_back(rank.get());
  return group;
}

std::vector<std::unique_ptr<comm::Control>> make_group(std::uint32_t size) {
  return join(comm::listen_on("127.0.0.1"), size, size);
}

/// The last rank of a group, which sends what it is told to.
struct RawRank {
  explicit RawRank(std::uint32_t size) {
    comm::Socket listener = comm::listen_on("127.0.0.1");
    const std::string address = address_of(listener);
    auto joining =
        std::async(std::launch::async, [&] { return join(std::move(listener), size - 1, size); });
    socket = std::move(comm::rendezvous({size - 1, size, address}, 20s).front());
    others = joining.get();
  }

  void send(std::uint64_t owner, const std::string& text) {
    std::size_t sent = 0;
    socket.send(comm::frame(core::WireWriter().put_fixed(owner).take() + text), sent);
  }

  std::vector<std::unique_ptr<comm::Control>> others;
  comm::Socket socket;
};

struct Attempt {
  std::vector<std::string> texts;
  ErrorRecord error;
  double seconds = 0;
};

Attempt gather(comm::Control& control, std::chrono::milliseconds limit,
               const std::string& mine = "text") {
  const auto start = core::Clock::now();
  Attempt outcome;
  try {
    outcome.texts = control.all_gather(mine, core::Deadline(limit));
  } catch (...) {
    outcome.error = core::current_error();
  }
  outcome.seconds = core::seconds_since(start);
  return outcome;
}

std::future<Attempt> gather_later(comm::Control& control, std::chrono::milliseconds limit,
                                  const std::string& mine = "text") {
  return std::async(std::launch::async, [=, &control] { return gather(control, limit, mine); });
}

}  // namespace

TEST_CASE("a rank that stops is named by all", "[tcp]") {
  const auto group = make_group(4);
  const std::uint32_t lost = GENERATE(0U, 2U);
  std::vector<std::future<Attempt>> others;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    if (rank != lost) others.push_back(gather_later(*group[rank], 1s));
  }
  for (auto& other : others) {
    const Attempt outcome = other.get();
    CHECK(outcome.error.kind == ErrorKind::timeout);
    CHECK(outcome.error.rank == static_cast<int>(lost));
    CHECK(outcome.error.cause == "gathering from all ranks: no answer within 1 s");
    CHECK(outcome.seconds < 30);
  }
  gather(*group[lost], 1s);  // when it goes on, it has what the others sent before
  CHECK(gather(*group[lost], 1s).error.kind == ErrorKind::timeout);
  CHECK(gather(*group[1], 20s).error.kind == ErrorKind::transport);
}

TEST_CASE("several ranks that stop are listed", "[tcp]") {
  const auto group = make_group(4);
  auto rank_0 = gather_later(*group[0], 1s);
  const ErrorRecord error = gather(*group[2], 1s).error;
  CHECK(error.rank == 1);
  CHECK(error.cause == "gathering from all ranks: no answer within 1 s from ranks 1, 3");
  CHECK(rank_0.get().error.cause == error.cause);
}

TEST_CASE("a rank that dies is named by all, at once", "[tcp]") {
  auto group = make_group(4);
  const std::uint32_t lost = GENERATE(0U, 2U);
  group[lost].reset();
  std::vector<std::future<Attempt>> others;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    if (rank != lost) others.push_back(gather_later(*group[rank], 60s));
  }
  for (auto& other : others) {
    const Attempt outcome = other.get();
    CHECK(outcome.error.kind == ErrorKind::timeout);
    CHECK(outcome.error.rank == static_cast<int>(lost));
    CHECK(outcome.error.cause.find("has ended or closed its connection") != std::string::npos);
    CHECK(outcome.seconds < 30);
  }
}

TEST_CASE("a rank 0 that stops while it waits for another rank is the one that is lost", "[tcp]") {
  comm::Socket listener = comm::listen_on("127.0.0.1");
  const std::string address = address_of(listener);
  const pid_t rank_0 = fork();
  if (rank_0 == 0) {
    const auto control = comm::make_tcp_control({0, 3, address}, 20s, std::move(listener));
    gather(*control, 60s);
    _exit(0);
  }
  listener = comm::Socket();
  auto joining = std::async(std::launch::async, [&] {
    return comm::make_tcp_control({1, 3, address}, 20s);
  });
  const auto slow = comm::make_tcp_control({2, 3, address}, 20s);
  const auto control = joining.get();
  auto waiting = gather_later(*control, 1s);
  std::this_thread::sleep_for(100ms);  // it has the text of rank 0 by now
  kill(rank_0, SIGSTOP);
  CHECK(waiting.get().error.rank == 0);
  kill(rank_0, SIGKILL);
  CHECK(waitpid(rank_0, nullptr, 0) == rank_0);
  gather(*slow, 1s);  // what was sent before
  CHECK(gather(*slow, 1s).error.rank == 0);
}

TEST_CASE("ranks that come late, but one after the other, are waited for", "[tcp]") {
  const auto group = make_group(6);
  std::vector<std::future<Attempt>> ranks;
  for (const auto& control : group) {
    ranks.push_back(gather_later(*control, 2s));
    std::this_thread::sleep_for(500ms);
  }
  for (auto& rank : ranks) CHECK(rank.get().texts.size() == 6);
}

TEST_CASE("a peer that ends after its part is not missed", "[tcp]") {
  auto group = make_group(3);
  const std::string large(3'000'000, 'x');
  std::vector<std::future<Attempt>> ranks;
  for (auto& control : group) {
    ranks.push_back(std::async(std::launch::async, [&control, &large] {
      Attempt outcome = gather(*control, 20s, large);
      control.reset();
      return outcome;
    }));
  }
  for (auto& rank : ranks) CHECK(rank.get().texts == std::vector<std::string>(3, large));
}

TEST_CASE("a rank that sends but does not receive is named", "[tcp]") {
  RawRank raw(3);
  raw.send(2, "text");
  auto rank_1 = gather_later(*raw.others[1], 20s);
  CHECK(gather(*raw.others[0], 1s, std::string(30'000'000, 'x')).error.rank == 2);
  CHECK(rank_1.get().texts.size() == 3);
  CHECK(gather(*raw.others[1], 20s).error.rank == 2);
}

TEST_CASE("a rank that speaks for another one is refused", "[tcp]") {
  RawRank raw(3);
  raw.send(1, "text");
  auto rank_1 = gather_later(*raw.others[1], 20s);
  CHECK(gather(*raw.others[0], 20s).error.kind == ErrorKind::transport);
  CHECK(rank_1.get().error.rank == 0);  // which has left the group
}

TEST_CASE("strangers are refused while ranks join, and the port is closed then", "[tcp]") {
  comm::Socket listener = comm::listen_on("127.0.0.1");
  const comm::Endpoint endpoint{"127.0.0.1", listener.port()};
  const std::string address = address_of(listener);
  auto rank_0 = std::async(std::launch::async, [&] {
    return comm::make_tcp_control({0, 2, address}, 20s, std::move(listener));
  });
  const comm::Greeting guess{2, 1, "not the token", "nonce"};
  comm::Socket stranger = comm::connect_to(endpoint, core::Deadline(5s));
  std::size_t sent = 0;
  stranger.send(comm::frame(comm::encode(guess)), sent);
  std::string answer;
  while (stranger.wait(POLLIN, core::Deadline(5s)) && stranger.receive(answer, 10'000)) {
  }
  CHECK(answer.find("another job is using this port") != std::string::npos);  // and closed
  const auto rank_1 = comm::make_tcp_control({1, 2, address}, 20s);
  const auto control = rank_0.get();
  CHECK_THROWS_AS(comm::connect_to(endpoint, core::Deadline(5s)), TransportError);
  auto other = gather_later(*control, 20s, "zero");
  CHECK(gather(*rank_1, 20s, "one").texts == std::vector<std::string>{"zero", "one"});
  CHECK(other.get().texts.size() == 2);
}
