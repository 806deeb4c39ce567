#include "comm/control/rendezvous.hpp"

#include <algorithm>
#include <charconv>
#include <poll.h>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "safeshuffle/error.hpp"

#include "comm/control/tcp_protocol.hpp"
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

/// One attempt. Throws TransportError if another one may succeed, else rank 0's error.
Socket connect_once(const Endpoint& rank_0, const std::string& greeting,
                    const core::Deadline& deadline) {
  Socket socket = connect_to(rank_0, deadline);
  std::string answer;
  std::size_t sent = 0;
  for (bool alive = socket.send(greeting, sent); !is_whole(answer);) {
    if (!alive) throw TransportError("the connection was closed before a reply was received");
    if (!socket.wait(POLLIN, deadline)) throw TransportError("connected, but no reply received");
    alive = receive_frame(socket, answer, answer_limit);
  }
  check_answer(std::string_view(answer).substr(frame_header));
  return socket;
}

/// The part of all ranks except 0: tries until rank 0 answers.
Socket connect_to_rank_0(const Member& self, const Address& address,
                         std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds notice{500};
  constexpr std::chrono::milliseconds longest_pause{100};
  const core::Deadline deadline(core::Deadline(timeout).limit() + notice);
  const std::string greeting =
      frame(encode(Greeting{self.size, self.rank, address.job, core::random_bytes(16)}));
  std::string cause;
  std::chrono::milliseconds pause{2};
  do {
    try {
      return connect_once(address.endpoint, greeting, deadline);
    } catch (const TransportError& error) {
      cause = error.record().cause;
    }
    std::this_thread::sleep_for(std::min(pause, deadline.remaining()));
    pause = std::min(pause * 2, longest_pause);
  } while (!deadline.expired());
  throw TimeoutError(ErrorRecord{.rank = 0,
                                 .cause = "no answer from rank 0 at " + self.address + " within " +
                                          core::seconds_text(timeout) + ": " + cause});
}

}  // namespace

std::vector<Socket> rendezvous(const Member& self, std::chrono::milliseconds timeout,
                               std::optional<Socket> listener) {
  const Address address = parse(self.address);
  if (self.rank == 0) {
    if (!listener) listener = listen_at(address.endpoint);
    return serve_rendezvous(std::move(*listener), self, address.job, core::Deadline(timeout));
  }
  std::vector<Socket> connections;
  connections.push_back(connect_to_rank_0(self, address, timeout));
  return connections;
}

}  // namespace safeshuffle::comm
