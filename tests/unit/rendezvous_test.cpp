// comm: ranks without a communicator meet, in threads and in processes, and do not when they must
// not.
#include "comm/control/rendezvous.hpp"

#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <future>
#include <netinet/in.h>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "comm/control/tcp_control.hpp"
#include "comm/control/tcp_protocol.hpp"
#include "core/error_wire.hpp"
#include "support/catch.hpp"
#include "support/contains.hpp"
#include "support/failure.hpp"

using namespace safeshuffle;
using testing::contains;
using namespace std::chrono_literals;

namespace {

/// What a rank got: whether all ranks can talk to each other, or an error.
struct Outcome {
  bool met = false;
  ErrorRecord error;
};

Outcome meet(const comm::Member& self, std::chrono::milliseconds limit,
             std::optional<comm::Socket> listener = {}) {
  try {
    const auto control = comm::make_tcp_control(self, limit, std::move(listener));
    const auto all = control->all_gather(std::to_string(self.rank), core::Deadline(limit));
    bool right = all.size() == self.size;
    for (std::size_t rank = 0; right && rank < all.size(); ++rank) {
      right = all[rank] == std::to_string(rank);
    }
    return {right, {}};
  } catch (...) {
    return {false, core::current_error()};
  }
}

std::future<Outcome> meet_later(const comm::Member& self, std::chrono::milliseconds limit) {
  return std::async(std::launch::async, [=] { return meet(self, limit); });
}

/// A port of the loopback interface that nobody else gets meanwhile, but at which tests may listen.
class Port {
 public:
  Port() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(bind(socket_.descriptor(), generic, size) == 0);
    REQUIRE(getsockname(socket_.descriptor(), generic, &size) == 0);
    number_ = ntohs(address.sin_port);
    // From now on others may bind it who know it.
    const int on = 1;
    REQUIRE(setsockopt(socket_.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
  }

  comm::Endpoint endpoint() const { return {"127.0.0.1", number_}; }
  std::string address(const std::string& host = "127.0.0.1") const {
    return "tcp://" + host + ":" + std::to_string(number_);
  }
  comm::Member at(std::uint32_t rank, std::uint32_t size) const { return {rank, size, address()}; }

 private:
  comm::Socket socket_;
  std::uint16_t number_ = 0;
};

/// A process that does `work` and ends, without the test's own clean-up, with 0 if it was true.
pid_t fork_process(const std::function<bool()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work() ? 0 : 1);
  return child;
}

int exit_status(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// A connection of something that is no rank.
comm::Socket connect_stranger(const Port& port, const std::string& says) {
  const core::Deadline deadline(5s);
  for (;;) {
    try {
      comm::Socket socket = comm::connect_to(port.endpoint(), deadline);
      std::size_t sent = 0;
      socket.send(says, sent);
      return socket;
    } catch (const TransportError&) {
      if (deadline.expired()) throw;
      std::this_thread::sleep_for(2ms);
    }
  }
}

}  // namespace

TEST_CASE("all ranks meet", "[rendezvous]") {
  const Port port;
  const std::uint32_t size = GENERATE(2U, 3U, 5U, 8U);
  std::vector<std::future<Outcome>> ranks;
  for (std::uint32_t rank = size; rank-- > 0;) {
    ranks.push_back(meet_later(port.at(rank, size), 20s));
  }
  for (auto& rank : ranks) {
    const Outcome outcome = rank.get();
    CHECK(outcome.met);
    CHECK(outcome.error.cause == "");
  }
}

TEST_CASE("processes meet", "[rendezvous]") {
  const Port port;
  std::vector<pid_t> children;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    children.push_back(fork_process([&] { return meet(port.at(rank, 4), 20s).met; }));
  }
  for (const pid_t child : children) CHECK(exit_status(child) == 0);
}

TEST_CASE("one address serves one rendezvous after the other", "[rendezvous]") {
  const Port port;
  const auto attend = [&port](std::uint32_t rank) {
    bool met = true;
    for (int round = 0; round < 5; ++round) met &= meet(port.at(rank, 3), 20s).met;
    return met;
  };
  std::vector<std::future<bool>> ranks;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::async(std::launch::async, attend, rank));
  }
  for (auto& rank : ranks) CHECK(rank.get());
}

TEST_CASE("ranks wait for a late rank 0", "[rendezvous]") {
  const Port port;
  auto first = meet_later(port.at(1, 3), 20s);
  auto second = meet_later(port.at(2, 3), 20s);
  std::this_thread::sleep_for(100ms);
  CHECK(meet(port.at(0, 3), 20s).met);
  CHECK(first.get().met);
  CHECK(second.get().met);
}

TEST_CASE("all ranks learn which ones did not come", "[rendezvous]") {
  const Port port;
  auto first = meet_later(port.at(1, 5), 20s);
  auto third = meet_later(port.at(3, 5), 20s);
  const Outcome rank_0 = meet(port.at(0, 5), 600ms);
  for (const Outcome& outcome : {rank_0, first.get(), third.get()}) {
    CHECK(outcome.error.kind == ErrorKind::timeout);
    CHECK(outcome.error.rank == 2);
    CHECK(contains(outcome.error.cause, port.address()));
    CHECK(contains(outcome.error.cause, "from ranks 2, 4"));
  }
}

TEST_CASE("a rank that does not reach rank 0 says why", "[rendezvous]") {
  const Port port;
  const ErrorRecord error = meet(port.at(1, 2), 100ms).error;
  CHECK(error.kind == ErrorKind::timeout);
  CHECK(error.rank == 0);
  CHECK(contains(error.cause, port.address()));
  CHECK(contains(error.cause, "Connection refused"));
}

TEST_CASE("a rank that gives up may come again", "[rendezvous]") {
  const Port port;
  auto rank_0 = meet_later(port.at(0, 3), 20s);
  CHECK(meet(port.at(1, 3), 100ms).error.kind == ErrorKind::timeout);
  auto second = meet_later(port.at(2, 3), 20s);
  std::this_thread::sleep_for(50ms);  // rank 0 must not have counted the one that has left
  CHECK(meet(port.at(1, 3), 20s).met);
  CHECK(second.get().met);
  CHECK(rank_0.get().met);
}

TEST_CASE("ranks that differ in the group size refuse each other", "[rendezvous]") {
  const Port port;
  const std::uint32_t rank = GENERATE(1U, 7U);
  // That all its ranks have been told, rank 0 knows only if one of them is the stray.
  const auto begin = core::Clock::now();
  auto rank_0 = meet_later(port.at(0, 3), rank == 1 ? 60s : 2s);
  auto good = meet_later(port.at(2, 3), 20s);
  std::this_thread::sleep_for(30ms);
  const Outcome stray = meet(port.at(rank, 8), 20s);
  for (const Outcome& outcome : {stray, rank_0.get(), good.get()}) {
    CHECK(outcome.error.kind == ErrorKind::config);
    CHECK(outcome.error.cause ==
          "the group has 3 ranks according to rank 0, but 8 according to rank " +
              std::to_string(rank));
  }
  CHECK(core::seconds_since(begin) < 30);
}

TEST_CASE("two processes cannot be the same rank", "[rendezvous]") {
  const Port port;
  auto rank_0 = meet_later(port.at(0, 3), 800ms);
  auto one = meet_later(port.at(1, 3), 20s);
  auto other = meet_later(port.at(1, 3), 20s);
  for (const Outcome& outcome : {rank_0.get(), one.get(), other.get()}) {
    CHECK(outcome.error.kind == ErrorKind::config);
    CHECK(outcome.error.cause == "two processes claim to be rank 1");
  }
}

TEST_CASE("invalid addresses are refused, with what is expected", "[rendezvous]") {
  for (const std::string& address :
       {std::string(), std::string("host:1"), std::string("http://a:1"), std::string("tcp://"),
        std::string("tcp://host"), std::string("tcp://host:"), std::string("tcp://host:0"),
        std::string("tcp://host:65536"), std::string("tcp://host:1x"), std::string("tcp://:1"),
        std::string("tcp://::1:1"), std::string("tcp://[host]:1"), std::string("tcp://[::1]"),
        "tcp://host:1/" + std::string(129, 'x')}) {
    const ErrorRecord error = meet(comm::Member{1, 2, address}, 1s).error;
    CHECK(error.kind == ErrorKind::config);
    CHECK(error.cause.find("the rendezvous address '" + address +
                           "' must be tcp://HOST:PORT or tcp://HOST:PORT/JOB") == 0);
  }
}

TEST_CASE("directories are refused, with what to use instead", "[rendezvous]") {
  const std::string address = GENERATE(as<std::string>(), "/shared/x", "/shared/", "file:///x");
  const ErrorRecord error = meet(comm::Member{GENERATE(0U, 1U), 2, address}, 1s).error;
  CHECK(error.kind == ErrorKind::config);
  CHECK(error.cause == "the rendezvous address '" + address +
                           "' is a path: directories are not supported, use tcp://HOST:PORT");
}

TEST_CASE("hosts may be names and addresses of either family", "[rendezvous]") {
  const std::string host =
      GENERATE(as<std::string>(), "localhost", "[::1]", "127.0.0.1", "0.0.0.0");
  const Port port;
  const std::string address = port.address(host);
  auto rank_0 = meet_later(comm::Member{0, 2, address}, 5s);
  const bool has_ipv6 = ::access("/proc/net/if_inet6", F_OK) == 0;
  const Outcome other = meet(comm::Member{1, 2, address}, 5s);
  const Outcome outcome = rank_0.get();
  if (host == "[::1]" && !has_ipv6) return;
  CHECK(outcome.met);
  CHECK(other.met);
}

TEST_CASE("a port in use is an error of rank 0", "[rendezvous]") {
  const Port port;
  const comm::Socket taken = comm::listen_at(port.endpoint());
  const Outcome outcome = meet(port.at(0, 2), 5s);
  CHECK(outcome.error.kind == ErrorKind::transport);
  CHECK(outcome.error.code == EADDRINUSE);
  CHECK(contains(outcome.error.cause, std::to_string(port.endpoint().port)));
}

TEST_CASE("a server of something else is not rank 0", "[rendezvous]") {
  const Port port;
  const comm::Socket listener = comm::listen_at(port.endpoint());
  auto rank = meet_later(port.at(1, 2), 300ms);
  while (rank.wait_for(1ms) != std::future_status::ready) {
    const std::string text = "220 mail.example.org ESMTP\r\n";
    std::size_t sent = 0;
    if (auto socket = comm::accept_from(listener)) socket->send(text, sent);
  }
  const ErrorRecord error = rank.get().error;
  CHECK(error.kind == ErrorKind::timeout);
  CHECK(contains(error.cause, "not a rank of this job"));
}

TEST_CASE("strangers do not disturb", "[rendezvous]") {
  const Port port;
  auto rank_0 = meet_later(port.at(0, 2), 4s);
  const std::string good = comm::frame(comm::encode(comm::Greeting{2, 1, {}, "nonce"}));
  std::vector<comm::Socket> strangers;
  for (const std::string& says :
       {std::string(), std::string("GET / HTTP/1.1\r\n\r\n"), std::string(5000, '\0'),
        good.substr(0, 3), good.substr(0, good.size() - 1),
        good.substr(0, 8) + std::string(8, '\xff'), comm::frame("?"), comm::frame(""),
        comm::frame("+blob")}) {
    strangers.push_back(connect_stranger(port, says));
  }
  SECTION("few") {}
  SECTION("more than may stay") {
    for (int i = 0; i < 200; ++i) strangers.push_back(connect_stranger(port, {}));
    CHECK(strangers.front().wait(POLLIN, core::Deadline(2s)));  // closed
  }
  CHECK(meet(port.at(1, 2), 4s).met);
  CHECK(rank_0.get().met);
}

TEST_CASE("a connection that breaks is made again", "[rendezvous]") {
  const Port port;
  const comm::Greeting greeting{3, 1, {}, "nonce"};
  comm::Socket listener = comm::listen_at(port.endpoint());
  { const auto broken = connect_stranger(port, comm::frame(comm::encode(greeting))); }
  auto first = meet_later(port.at(1, 3), 5s);
  auto second = meet_later(port.at(2, 3), 5s);
  std::this_thread::sleep_for(100ms);  // so that rank 0 sees everything at once
  CHECK(meet(port.at(0, 3), 5s, std::move(listener)).met);
  CHECK(first.get().met);
  CHECK(second.get().met);
}

TEST_CASE("a rank that comes again need not be seen to have left", "[rendezvous]") {
  const Port port;
  auto rank_0 = meet_later(port.at(0, 3), 1s);
  const std::string greeting = comm::frame(comm::encode(comm::Greeting{3, 1, {}, "nonce"}));
  std::optional<comm::Socket> half_open = connect_stranger(port, greeting);
  comm::Socket again = connect_stranger(port, greeting);
  std::this_thread::sleep_for(50ms);
  half_open.reset();  // now it is known, but no longer concerns rank 1
  std::this_thread::sleep_for(50ms);
  auto second = meet_later(port.at(2, 3), 1s);
  std::string answer;
  while (!comm::is_whole(answer)) {
    REQUIRE(again.wait(POLLIN, core::Deadline(4s)));
    REQUIRE(comm::receive_frame(again, answer, comm::answer_limit));
  }
  CHECK_NOTHROW(comm::check_answer(std::string_view(answer).substr(comm::frame_header)));
  // It then says nothing, and is lost.
  CHECK(second.get().error.rank == 1);
  CHECK(rank_0.get().error.rank == 1);
}

TEST_CASE("messages are taken whole or refused", "[rendezvous]") {
  const auto receive = [](const std::string& sent, std::size_t limit) {
    const Port port;
    const comm::Socket listener = comm::listen_at(port.endpoint());
    const comm::Socket peer = connect_stranger(port, sent);
    auto socket = comm::accept_from(listener);
    REQUIRE(socket);
    REQUIRE(socket->wait(POLLIN, core::Deadline(5s)));
    std::string frame;
    comm::receive_frame(*socket, frame, limit);
    return frame;
  };
  const std::string message = comm::frame("text");
  for (std::size_t length = 1; length < message.size(); ++length) {
    CHECK_FALSE(comm::is_whole(receive(message.substr(0, length), message.size())));
  }
  CHECK(receive(message + "of the next", message.size()) == message);
  CHECK(comm::is_whole(message));
  CHECK_THROWS_AS(receive(message.substr(0, 16), message.size() - 1), TransportError);
  CHECK_THROWS_AS(receive("s!", message.size()), TransportError);
}

TEST_CASE("incompatible versions are told apart from garbage", "[rendezvous]") {
  const Port port;
  std::string foreign = comm::frame(comm::encode(comm::Greeting{2, 1, {}, "nonce"}));
  foreign[7] += 1;
  auto rank_0 = meet_later(port.at(0, 2), 300ms);
  const auto stranger = connect_stranger(port, foreign);
  CHECK(rank_0.get().error.kind == ErrorKind::config);
}

TEST_CASE("jobs of different names do not mix at one port", "[rendezvous]") {
  const Port port;
  auto rank_0 = meet_later(comm::Member{0, 2, port.address() + "/job-1"}, 5s);
  const ErrorRecord stray = meet(comm::Member{1, 2, port.address() + "/job-2"}, 500ms).error;
  CHECK(stray.kind == ErrorKind::timeout);
  CHECK(contains(stray.cause, "another job"));
  CHECK(meet(comm::Member{1, 2, port.address() + "/job-1"}, 5s).met);
  CHECK(rank_0.get().met);
}

TEST_CASE("a rank that waits for killed ones meets those that replace them", "[rendezvous]") {
  const Port port;
  std::vector<pid_t> killed;
  for (const std::uint32_t rank : {0U, 2U}) {
    killed.push_back(fork_process([&] { return meet(port.at(rank, 4), 20s).met; }));
  }
  auto first = meet_later(port.at(1, 4), 20s);
  const auto stranger = connect_stranger(port, {});  // rank 0 is there
  std::this_thread::sleep_for(50ms);
  for (const pid_t child : killed) {
    kill(child, SIGKILL);
    CHECK(exit_status(child) == -1);
  }
  auto second = meet_later(port.at(2, 4), 20s);
  auto third = meet_later(port.at(3, 4), 20s);
  std::this_thread::sleep_for(50ms);
  CHECK(meet(port.at(0, 4), 20s).met);
  CHECK(first.get().met);
  CHECK(second.get().met);
  CHECK(third.get().met);
}
