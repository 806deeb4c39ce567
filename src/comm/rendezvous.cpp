#include "comm/rendezvous.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <poll.h>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "safeshuffle/error.hpp"

#include "comm/rendezvous_protocol.hpp"
#include "comm/rendezvous_server.hpp"
#include "comm/socket.hpp"
#include "core/random.hpp"
#include "core/text.hpp"

namespace safeshuffle::comm {
namespace {

constexpr std::string_view scheme = "tcp://";

struct Address {
  Endpoint endpoint;
  std::string job;
};

[[noreturn]] void bad_address(const std::string& address) {
  const bool is_path = address.starts_with('/') || address.starts_with("file://");
  throw ConfigError("the rendezvous address '" + address + "' " +
                    (is_path ? "is a path: directories are not supported, use tcp://HOST:PORT"
                             : "must be tcp://HOST:PORT or tcp://HOST:PORT/JOB, with an IPv6 "
                               "address in brackets and a JOB of at most " +
                                   std::to_string(job_limit) + " bytes"));
}

std::uint16_t parse_port(std::string_view text, const std::string& address) {
  std::uint16_t port = 0;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (code != std::errc() || stop != text.data() + text.size() || port == 0) bad_address(address);
  return port;
}

std::string parse_host(std::string_view text, const std::string& address) {
  const bool bracketed = text.starts_with('[') && text.ends_with(']');
  if (bracketed) text = text.substr(1, text.size() - 2);
  const bool is_ipv6 = text.find(':') != std::string_view::npos;
  if (text.empty() || bracketed != is_ipv6) bad_address(address);
  return std::string(text);
}

Address parse(const std::string& address) {
  if (!address.starts_with(scheme)) bad_address(address);
  const std::string_view rest = std::string_view(address).substr(scheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  const std::string_view place = rest.substr(0, slash);
  const std::string_view job = rest.substr(std::min(slash + 1, rest.size()));
  const std::size_t colon = place.rfind(':');
  if (colon == std::string_view::npos || job.size() > job_limit) bad_address(address);
  return {
      {parse_host(place.substr(0, colon), address), parse_port(place.substr(colon + 1), address)},
      std::string(job)};
}

void check_rank(const Bootstrap& self) {
  if (self.rank < self.size) return;
  throw ConfigError("rank " + std::to_string(self.rank) + " is out of range for a group of " +
                    std::to_string(self.size) + " ranks");
}

/// Sends `outgoing` and returns rank 0's answer. Throws TransportError.
std::string send_and_receive(Socket& socket, std::string outgoing, const core::Deadline& deadline) {
  std::string incoming;
  for (;;) {
    const short events = outgoing.empty() ? POLLIN : POLLOUT;
    if (!socket.wait(events, deadline)) throw TransportError("connected, but no reply received");
    const bool alive =
        outgoing.empty() ? socket.receive(incoming, answer_limit) : socket.send(outgoing);
    if (const auto answer = unframe(incoming, answer_limit)) return *answer;
    if (!alive) throw TransportError("the connection was closed before a reply was received");
  }
}

/// One attempt. Throws TransportError.
std::string ask_once(const Endpoint& rank_0, const std::string& greeting,
                     const core::Deadline& deadline) {
  Socket socket = connect_to(rank_0, deadline);
  std::string answer = send_and_receive(socket, greeting, deadline);
  require_final(answer);
  std::string last(1, acknowledgement);
  socket.send(last);
  return answer;
}

/// Throws the error of a rank that got no answer from rank 0: its own failure, if it has one,
/// because that says more, else the reason for the missing answer.
[[noreturn]] void raise_unanswered(const Greeting& greeting, const Bootstrap& self,
                                   const core::Deadline& deadline, const std::string& cause) {
  if (greeting.failure) raise(as_own(*greeting.failure));
  throw TimeoutError(ErrorRecord{.rank = 0,
                                 .cause = "no answer from rank 0 at " + self.address + " within " +
                                          core::seconds_text(deadline.limit()) + ": " + cause});
}

/// The part of all ranks except 0: tries until rank 0 answers.
std::string ask_rank_0(const Bootstrap& self, const Address& address,
                       const std::function<std::string()>& step, const core::Deadline& deadline) {
  constexpr std::chrono::milliseconds longest_pause{100};
  const Greeting greeting{self.size, self.rank, address.job, core::random_bytes(16),
                          failure_of(step, self.rank)};
  const std::string message = frame(encode(greeting));
  std::string cause;
  std::chrono::milliseconds pause{2};
  do {
    try {
      return ask_once(address.endpoint, message, deadline);
    } catch (const TransportError& error) {
      cause = error.record().cause;
    }
    std::this_thread::sleep_for(std::min(pause, deadline.remaining()));
    pause = std::min(pause * 2, longest_pause);
  } while (!deadline.expired());
  raise_unanswered(greeting, self, deadline, cause);
}

std::string serve_as_rank_0(const Bootstrap& self, const Address& address,
                            const std::function<std::string()>& step,
                            const core::Deadline& deadline) {
  Socket listener = listen_at(address.endpoint);  // before the step: others may connect meanwhile
  return serve_rendezvous(std::move(listener), self, address.job, answer_of(step), deadline);
}

}  // namespace

std::string rendezvous(const Bootstrap& self, const std::function<std::string()>& step,
                       core::Deadline deadline) {
  check_rank(self);
  if (self.size == 1) return open_answer(answer_of(step));
  const Address address = parse(self.address);
  return open_answer(self.rank == 0 ? serve_as_rank_0(self, address, step, deadline)
                                    : ask_rank_0(self, address, step, deadline));
}

}  // namespace safeshuffle::comm
