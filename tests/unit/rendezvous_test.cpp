// comm: ranks without a communicator meet, in threads and in processes, and do not when they must
// not.
#include "comm/rendezvous.hpp"

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

#include "comm/rendezvous_protocol.hpp"
#include "comm/socket.hpp"
#include "core/error_wire.hpp"
#include "support/catch.hpp"
#include "support/failure.hpp"

using namespace safeshuffle;
using namespace std::chrono_literals;

namespace {

const std::string secret("a secret\0of 128 bytes, more or less", 35);

using Step = std::function<std::string()>;

std::string return_secret() {
  return secret;
}

[[noreturn]] std::string fail() {
  raise({.kind = ErrorKind::io, .code = 5, .file = "/dev/gpu", .cause = "no unique id"});
}

std::string umlauts(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "\u00e4";
  return text;
}

[[noreturn]] std::string fail_at_length() {
  const std::string text = "x" + umlauts(1'000'000);
  raise({.kind = ErrorKind::io, .file = text, .tensor = text, .cause = text});
}

Step fail_with(const std::string& cause) {
  return [cause]() -> std::string { throw MemoryError(cause); };
}

/// What a rank got: the blob, or an error, which then takes the place of the blob as text, too.
struct Outcome {
  std::string blob;
  ErrorRecord error;
};

Outcome meet(const Bootstrap& self, std::chrono::milliseconds limit,
             const Step& step = return_secret) {
  try {
    return {comm::rendezvous(self, step, core::Deadline(limit)), {}};
  } catch (...) {
    const ErrorRecord error = core::current_error();
    return {describe(error), error};
  }
}

std::future<Outcome> meet_later(const Bootstrap& self, std::chrono::milliseconds limit,
                                const Step& step = return_secret) {
  return std::async(std::launch::async, [=] { return meet(self, limit, step); });
}

Bootstrap rank_of(std::uint32_t rank, std::uint32_t size, const std::string& address) {
  return {.rank = rank, .size = size, .address = address};
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
  Bootstrap at(std::uint32_t rank, std::uint32_t size) const {
    return rank_of(rank, size, address());
  }

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

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A connection of something that is no rank.
comm::Socket connect_stranger(const Port& port, std::string says) {
  const core::Deadline deadline(5s);
  for (;;) {
    try {
      comm::Socket socket = comm::connect_to(port.endpoint(), deadline);
      socket.send(says);
      return socket;
    } catch (const TransportError&) {
      if (deadline.expired()) throw;
      std::this_thread::sleep_for(2ms);
    }
  }
}

}  // namespace

TEST_CASE("all ranks get what the step of rank 0 returns", "[rendezvous]") {
  const Port port;
  const std::uint32_t size = GENERATE(1U, 2U, 3U, 5U, 8U);
  std::atomic<std::uint32_t> steps = 0;
  std::vector<std::future<Outcome>> ranks;
  for (std::uint32_t rank = size; rank-- > 0;) {
    ranks.push_back(meet_later(port.at(rank, size), 20s, [&steps, rank] {
      ++steps;
      return rank == 0 ? secret : std::string(10000, 'x');
    }));
  }
  for (auto& rank : ranks) {
    const Outcome outcome = rank.get();
    CHECK(outcome.blob == secret);
    CHECK(outcome.error.cause == "");
  }
  CHECK(steps == size);
}

TEST_CASE("processes meet", "[rendezvous]") {
  const Port port;
  std::vector<pid_t> children;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    children.push_back(fork_process([&] { return meet(port.at(rank, 4), 20s).blob == secret; }));
  }
  for (const pid_t child : children) CHECK(exit_status(child) == 0);
}

TEST_CASE("one address serves one rendezvous after the other", "[rendezvous]") {
  const Port port;
  const auto attend = [&port](std::uint32_t rank) {
    std::vector<std::string> blobs;
    for (int round = 0; round < 5; ++round) {
      blobs.push_back(meet(port.at(rank, 3), 20s, [round] { return std::to_string(round); }).blob);
    }
    return blobs;
  };
  std::vector<std::future<std::vector<std::string>>> ranks;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::async(std::launch::async, attend, rank));
  }
  for (auto& rank : ranks) CHECK(rank.get() == std::vector<std::string>{"0", "1", "2", "3", "4"});
}

TEST_CASE("ranks wait for a late rank 0", "[rendezvous]") {
  const Port port;
  auto first = meet_later(port.at(1, 3), 20s);
  auto second = meet_later(port.at(2, 3), 20s);
  std::this_thread::sleep_for(100ms);
  CHECK(meet(port.at(0, 3), 20s).blob == secret);
  CHECK(first.get().blob == secret);
  CHECK(second.get().blob == secret);
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
  CHECK(meet(port.at(1, 3), 20s).blob == secret);
  CHECK(second.get().blob == secret);
  CHECK(rank_0.get().blob == secret);
}

TEST_CASE("all ranks throw what the step of one throws", "[rendezvous]") {
  const Port port;
  const std::uint32_t failing = GENERATE(0U, 1U, 2U);
  const std::uint32_t last = GENERATE(0U, 1U, 2U);
  const auto begin = core::Clock::now();
  std::vector<std::future<Outcome>> ranks;
  for (const std::uint32_t rank : {last + 1, last + 2, last}) {
    if (rank == last) std::this_thread::sleep_for(50ms);
    const std::uint32_t mine = rank % 3;
    ranks.push_back(meet_later(port.at(mine, 3), 20s, mine == failing ? fail : return_secret));
  }
  for (auto& rank : ranks) {
    const ErrorRecord error = rank.get().error;
    CHECK(error.kind == ErrorKind::io);
    CHECK(error.code == 5);
    CHECK(error.rank == static_cast<int>(failing));
    CHECK(error.file == "/dev/gpu");
    CHECK(error.cause == "no unique id");
  }
  CHECK(core::seconds_since(begin) < 10);
}

TEST_CASE("nobody waits for the last rank to learn of a failure", "[rendezvous]") {
  const Port port;
  auto rank_0 = meet_later(port.at(0, 4), 20s);
  auto first = meet_later(port.at(1, 4), 20s);
  const Outcome failed = meet(port.at(2, 4), 5s, fail);
  CHECK(failed.error.rank == 2);
  CHECK(first.get().blob == failed.blob);
  CHECK(meet(port.at(3, 4), 5s).blob == failed.blob);
  CHECK(rank_0.get().blob == failed.blob);
}

TEST_CASE("of several failures all ranks throw the same", "[rendezvous]") {
  const Port port;
  std::vector<std::future<Outcome>> ranks;
  for (std::uint32_t rank = 5; rank-- > 0;) {
    const Step failure = fail_with("failure of rank " + std::to_string(rank));
    ranks.push_back(meet_later(port.at(rank, 5), 20s, rank < 2 ? return_secret : failure));
  }
  const Outcome first = ranks.front().get();
  CHECK(first.error.kind == ErrorKind::memory);
  CHECK(first.error.rank >= 2);
  CHECK(first.error.cause == "failure of rank " + std::to_string(first.error.rank));
  for (std::size_t i = 1; i < ranks.size(); ++i) CHECK(ranks[i].get().blob == first.blob);
}

TEST_CASE("rank 0's own failure goes before all others", "[rendezvous]") {
  const Port port;
  auto first = meet_later(port.at(1, 3), 20s, fail_with("not this"));
  auto second = meet_later(port.at(2, 3), 20s, fail_with("nor this"));
  std::this_thread::sleep_for(50ms);
  CHECK(meet(port.at(0, 3), 20s, fail).error.file == "/dev/gpu");
  CHECK(first.get().error.file == "/dev/gpu");
  CHECK(second.get().error.file == "/dev/gpu");
}

TEST_CASE("of failures that come together that of the lowest rank is taken", "[rendezvous]") {
  const Port port;
  std::vector<comm::Socket> guests;
  // While rank 0 is at something else, so that it sees both at once.
  const Step step = [&] {
    for (const std::uint32_t rank : {2U, 1U}) {
      const auto failure = comm::failure_of(fail_with("here"), rank);
      const comm::Greeting greeting{3, rank, {}, "nonce " + std::to_string(rank), failure};
      guests.push_back(connect_stranger(port, comm::frame(comm::encode(greeting))));
    }
    return secret;
  };
  const ErrorRecord error = meet(port.at(0, 3), 1s, step).error;
  CHECK(error.cause == "here");
  CHECK(error.rank == 1);
}

TEST_CASE("a rank that fails and does not reach rank 0 throws its own error", "[rendezvous]") {
  const Port port;
  const ErrorRecord error = meet(port.at(1, 2), 100ms, fail).error;
  CHECK(error.kind == ErrorKind::io);
  CHECK(error.file == "/dev/gpu");
  CHECK(error.rank == -1);  // the others do not know it
}

TEST_CASE("a failure that comes after the others have gone is that of its rank", "[rendezvous]") {
  const Port port;
  auto rank_0 = meet_later(port.at(0, 3), 2s);
  const std::string greeting = comm::frame(comm::encode(comm::Greeting{3, 1, {}, "nonce"}));
  std::optional<comm::Socket> first = connect_stranger(port, greeting);
  CHECK(meet(port.at(2, 3), 20s).blob == secret);
  first.reset();  // without having acknowledged the answer
  CHECK(meet(port.at(1, 3), 20s, fail).error.file == "/dev/gpu");
  CHECK(rank_0.get().error.kind == ErrorKind::timeout);
}

TEST_CASE("texts of a failure are cut where they are too long to be told", "[rendezvous]") {
  const Port port;
  const std::uint32_t failing = GENERATE(0U, 1U);
  auto rank_0 = meet_later(port.at(0, 2), 20s, failing == 0 ? fail_at_length : return_secret);
  const ErrorRecord error =
      meet(port.at(1, 2), 20s, failing == 1 ? fail_at_length : return_secret).error;
  CHECK(error.kind == ErrorKind::io);
  CHECK(error.rank == static_cast<int>(failing));
  for (const std::string& text : {error.file, error.tensor, error.cause}) {
    CHECK(text == "x" + umlauts(511) + "...");
  }
  CHECK(rank_0.get().error.cause == error.cause);
}

TEST_CASE("a group of one throws what its step throws", "[rendezvous]") {
  const ErrorRecord error = meet(rank_of(0, 1, {}), 1s, fail).error;
  CHECK(error.file == "/dev/gpu");
  CHECK(error.rank == 0);
}

TEST_CASE("ranks that differ in the group size refuse each other", "[rendezvous]") {
  const Port port;
  const std::uint32_t rank = GENERATE(1U, 7U);
  // That all its ranks have been told, rank 0 knows only if one of them is the stray.
  const auto begin = core::Clock::now();
  auto rank_0 = meet_later(port.at(0, 3), rank == 1 ? 20s : 2s);
  auto good = meet_later(port.at(2, 3), 20s);
  std::this_thread::sleep_for(30ms);
  const Outcome stray = meet(port.at(rank, 8), 20s);
  for (const Outcome& outcome : {stray, rank_0.get(), good.get()}) {
    CHECK(outcome.error.kind == ErrorKind::config);
    CHECK(outcome.error.cause ==
          "the group has 3 ranks according to rank 0, but 8 according to rank " +
              std::to_string(rank));
  }
  CHECK(core::seconds_since(begin) < 10);
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
    const ErrorRecord error = meet(rank_of(1, 2, address), 1s).error;
    CHECK(error.kind == ErrorKind::config);
    CHECK(error.cause.find("the rendezvous address '" + address +
                           "' must be tcp://HOST:PORT or tcp://HOST:PORT/JOB") == 0);
  }
}

TEST_CASE("directories are refused, with what to use instead", "[rendezvous]") {
  const std::string address = GENERATE(as<std::string>(), "/shared/x", "/shared/", "file:///x");
  const auto step = []() -> std::string { throw std::runtime_error("was called"); };
  const ErrorRecord error = meet(rank_of(GENERATE(0U, 1U), 2, address), 1s, step).error;
  CHECK(error.kind == ErrorKind::config);
  CHECK(error.cause == "the rendezvous address '" + address +
                           "' is a path: directories are not supported, use tcp://HOST:PORT");
}

TEST_CASE("a rank must be in its group", "[rendezvous]") {
  CHECK(meet(rank_of(2, 2, "tcp://host:1"), 1s).error.kind == ErrorKind::config);
  CHECK(meet(rank_of(0, 0, "tcp://host:1"), 1s).error.kind == ErrorKind::config);
}

TEST_CASE("hosts may be names and addresses of either family", "[rendezvous]") {
  const std::string host =
      GENERATE(as<std::string>(), "localhost", "[::1]", "127.0.0.1", "0.0.0.0");
  const Port port;
  const std::string address = port.address(host);
  auto rank_0 = meet_later(rank_of(0, 2, address), 5s);
  const bool has_ipv6 = ::access("/proc/net/if_inet6", F_OK) == 0;
  const Outcome other = meet(rank_of(1, 2, address), 5s);
  const Outcome outcome = rank_0.get();
  if (host == "[::1]" && !has_ipv6) return;
  CHECK(outcome.blob == secret);
  CHECK(other.blob == secret);
}

TEST_CASE("a port in use is an error of rank 0", "[rendezvous]") {
  const Port port;
  const comm::Socket taken = comm::listen_at(port.endpoint());
  const Outcome outcome =
      meet(port.at(0, 2), 5s, []() -> std::string { throw std::runtime_error("was called"); });
  CHECK(outcome.error.kind == ErrorKind::transport);
  CHECK(outcome.error.code == EADDRINUSE);
  CHECK(contains(outcome.error.cause, std::to_string(port.endpoint().port)));
}

TEST_CASE("a server of something else is not rank 0", "[rendezvous]") {
  const Port port;
  const comm::Socket listener = comm::listen_at(port.endpoint());
  auto rank = meet_later(port.at(1, 2), 300ms);
  while (rank.wait_for(1ms) != std::future_status::ready) {
    std::string text = "220 mail.example.org ESMTP\r\n";
    if (auto socket = comm::accept_from(listener)) socket->send(text);
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
  CHECK(meet(port.at(1, 2), 4s).blob == secret);
  CHECK(rank_0.get().blob == secret);
}

TEST_CASE("a connection that breaks is made again", "[rendezvous]") {
  const Port port;
  const comm::Greeting greeting{3, 1, {}, "nonce"};
  // While rank 0 is at something else, so that it sees everything at once.
  auto rank_0 = meet_later(port.at(0, 3), 5s, [] {
    std::this_thread::sleep_for(100ms);
    return secret;
  });
  { const auto broken = connect_stranger(port, comm::frame(comm::encode(greeting))); }
  auto first = meet_later(port.at(1, 3), 5s);
  auto second = meet_later(port.at(2, 3), 5s);
  CHECK(first.get().blob == secret);
  CHECK(second.get().blob == secret);
  CHECK(rank_0.get().blob == secret);
}

TEST_CASE("a rank that comes again need not be seen to have left", "[rendezvous]") {
  const Port port;
  auto rank_0 = meet_later(port.at(0, 3), 5s);
  const std::string greeting = comm::frame(comm::encode(comm::Greeting{3, 1, {}, "nonce"}));
  std::optional<comm::Socket> half_open = connect_stranger(port, greeting);
  comm::Socket again = connect_stranger(port, greeting);
  std::this_thread::sleep_for(50ms);
  half_open.reset();  // now it is known, but no longer concerns rank 1
  std::this_thread::sleep_for(50ms);
  auto second = meet_later(port.at(2, 3), 5s);
  std::string answer;
  REQUIRE(again.wait(POLLIN, core::Deadline(4s)));
  REQUIRE(again.receive(answer, comm::answer_limit));
  CHECK(comm::open_answer(comm::unframe(answer, comm::answer_limit).value_or("")) == secret);
  std::string acknowledgement = ".";
  again.send(acknowledgement);
  CHECK(second.get().blob == secret);
  CHECK(rank_0.get().blob == secret);
}

TEST_CASE("a rank that does not acknowledge the answer is missed", "[rendezvous]") {
  const Port port;
  auto rank_0 = meet_later(port.at(0, 2), 300ms);
  const std::string greeting = comm::frame(comm::encode(comm::Greeting{2, 1, {}, "nonce"}));
  const auto silent = connect_stranger(port, greeting);
  const ErrorRecord error = rank_0.get().error;
  CHECK(error.kind == ErrorKind::timeout);
  CHECK(error.rank == 1);
}

TEST_CASE("messages are taken whole or refused", "[rendezvous]") {
  const std::string message = comm::frame("text");
  for (std::size_t length = 0; length < message.size(); ++length) {
    CHECK(comm::unframe(message.substr(0, length), message.size()) == std::nullopt);
  }
  CHECK(comm::unframe(message, message.size()) == "text");
  CHECK_THROWS_AS(comm::unframe(message.substr(0, 16), message.size() - 1), TransportError);
  CHECK_THROWS_AS(comm::unframe("s!", message.size()), TransportError);
}

TEST_CASE("incompatible versions are told apart from garbage", "[rendezvous]") {
  const Port port;
  std::string foreign = comm::frame(comm::encode(comm::Greeting{2, 1, {}, "nonce"}));
  foreign[7] += 1;
  auto rank_0 = meet_later(port.at(0, 2), 300ms);
  const auto stranger = connect_stranger(port, foreign);
  CHECK(rank_0.get().error.kind == ErrorKind::config);
  CHECK_THROWS_AS(comm::unframe(foreign, 1000), ConfigError);
}

TEST_CASE("jobs of different names do not mix at one port", "[rendezvous]") {
  const Port port;
  auto rank_0 = meet_later(rank_of(0, 2, port.address() + "/job-1"), 5s);
  const ErrorRecord stray = meet(rank_of(1, 2, port.address() + "/job-2"), 500ms).error;
  CHECK(stray.kind == ErrorKind::timeout);
  CHECK(contains(stray.cause, "another job"));
  CHECK(meet(rank_of(1, 2, port.address() + "/job-1"), 5s).blob == secret);
  CHECK(rank_0.get().blob == secret);
}

TEST_CASE("a rank that waits for killed ones meets those that replace them", "[rendezvous]") {
  const Port port;
  std::vector<pid_t> killed;
  for (const std::uint32_t rank : {0U, 2U}) {
    killed.push_back(fork_process([&] { return meet(port.at(rank, 4), 20s).blob != secret; }));
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
  CHECK(meet(port.at(0, 4), 20s).blob == secret);
  CHECK(first.get().blob == secret);
  CHECK(second.get().blob == secret);
  CHECK(third.get().blob == secret);
}
