#include "comm/rendezvous_tcp.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <poll.h>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"

#include "comm/reception.hpp"
#include "comm/rendezvous_protocol.hpp"
#include "comm/socket.hpp"

namespace safeshuffle::comm {
namespace {

constexpr char acknowledgement = '.';

struct TcpAddress {
  Endpoint endpoint;
  std::string job;
};

[[noreturn]] void bad_address(const std::string& address) {
  throw ConfigError("the address '" + address +
                    "' of the meeting must be tcp://HOST:PORT or tcp://HOST:PORT/JOB, with an IPv6 "
                    "address in brackets and a JOB of at most " +
                    std::to_string(job_limit) + " bytes");
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

TcpAddress parse(const std::string& address) {
  const std::string_view rest = std::string_view(address).substr(std::string_view("tcp://").size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  const std::string_view place = rest.substr(0, slash);
  const std::string_view job = rest.substr(std::min(slash + 1, rest.size()));
  const std::size_t colon = place.rfind(':');
  if (colon == std::string_view::npos || job.size() > job_limit) bad_address(address);
  return {
      {parse_host(place.substr(0, colon), address), parse_port(place.substr(colon + 1), address)},
      std::string(job)};
}

/// One connection, as rank 0 sees it: it greets, waits for the answer, takes it, acknowledges it.
class Connection {
 public:
  enum class Stage { greeting, waiting, answered, gone };

  explicit Connection(Socket socket) : socket_(std::move(socket)) {}

  Stage stage() const noexcept { return stage_; }

  /// Valid from stage `waiting` on.
  const Greeting& greeting() const noexcept { return greeting_; }

  /// A rank of this meeting; others are not kept for long.
  bool admitted() const noexcept { return admitted_; }
  void admit() noexcept { admitted_ = true; }
  bool overdue() const noexcept { return !admitted_ && patience_.expired(); }

  bool acknowledged() const noexcept {
    return stage_ == Stage::gone && incoming_ == std::string_view(&acknowledgement, 1);
  }

  pollfd entry() const {
    const short events = outgoing_.empty() ? POLLIN : POLLOUT;
    return {socket_.descriptor(), events, 0};
  }

  /// Does what the socket allows. Throws what `unframe` and `decode_greeting` throw.
  void proceed() {
    const bool alive =
        outgoing_.empty() ? socket_.receive(incoming_, greeting_limit) : socket_.send(outgoing_);
    if (!alive) return go();
    if (stage_ == Stage::greeting) return understand();
    if (!incoming_.empty()) go();  // the acknowledgement; nothing else is expected
  }

  void tell(std::string_view answer) {
    outgoing_ = frame(answer);
    stage_ = Stage::answered;
    if (!socket_.send(outgoing_)) go();
  }

  void go() noexcept { stage_ = Stage::gone; }

 private:
  void understand() {
    const auto text = unframe(incoming_, greeting_limit);
    if (!text) return;
    greeting_ = decode_greeting(*text);
    incoming_.clear();
    stage_ = Stage::waiting;
  }

  Socket socket_;
  Stage stage_ = Stage::greeting;
  bool admitted_ = false;
  core::Deadline patience_{std::chrono::seconds(5)};  // a rank greets at once
  std::string incoming_;
  std::string outgoing_;
  Greeting greeting_;
};

/// Rank 0's port and the connections to it.
class TcpHost {
 public:
  TcpHost(Reception& reception, Socket listener, std::string job, std::size_t world)
      : reception_(reception),
        listener_(std::move(listener)),
        job_(std::move(job)),
        most_connections_(2 * world + 64) {}

  void run(const core::Deadline& deadline) {
    while (!reception_.over() && !deadline.expired()) {
      attend_all(wait(deadline));
      let_in_all();
      if (reception_.release()) answer_all();
      std::erase_if(connections_,
                    [](const Connection& connection) { return connection.stage() == Stage::gone; });
    }
    if (reception_.over()) return;
    reception_.give_up(deadline.limit());
    answer_all();
  }

 private:
  using Stage = Connection::Stage;

  /// Until an old or a new connection has something to say; returns what each one's socket is
  /// ready for.
  std::vector<pollfd> wait(const core::Deadline& deadline) {
    constexpr std::chrono::milliseconds look_around{500};  // for those that are overdue
    std::vector<pollfd> entries;
    for (const Connection& connection : connections_) entries.push_back(connection.entry());
    entries.push_back({listener_.descriptor(), POLLIN, 0});
    const auto time = std::min(look_around, deadline.remaining());
    poll(entries.data(), entries.size(), static_cast<int>(time.count()));
    return entries;
  }

  void attend_all(const std::vector<pollfd>& entries) {
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      if (entries[i].revents != 0 && connections_[i].stage() != Stage::gone)
        attend(connections_[i]);
      if (connections_[i].overdue()) connections_[i].go();
    }
  }

  void attend(Connection& connection) {
    const bool was_greeting = connection.stage() == Stage::greeting;
    try {
      connection.proceed();
      if (was_greeting && connection.stage() == Stage::waiting) receive(connection);
    } catch (const ConfigError& error) {
      connection.tell(reception_.refuse(error.record().cause));
    } catch (const TransportError&) {
      connection.go();  // a port scanner, or a program that has mistaken the port
    }
    part_if_gone(connection);
  }

  void receive(Connection& connection) {
    const Greeting& greeting = connection.greeting();
    if (greeting.job != job_) return connection.tell(later("another job meets at this port"));
    const auto reply = reception_.greet(greeting);
    if (!reply) replace_former(connection);
    if (!reply || *reply == reception_.answer()) connection.admit();
    if (reply) connection.tell(*reply);
  }

  /// A rank that comes again has given up its connection, even if that is not known here yet.
  void replace_former(const Connection& connection) {
    for (Connection& other : connections_) {
      if (&other != &connection && other.greeting().nonce == connection.greeting().nonce)
        other.go();
    }
  }

  void part_if_gone(const Connection& connection) {
    if (!connection.admitted() || connection.stage() != Stage::gone) return;
    if (connection.acknowledged()) {
      reception_.serve(connection.greeting().rank);
    } else {
      reception_.leave(connection.greeting().rank);
    }
  }

  /// A few at a time, so that no flood of them stops the rest.
  void let_in_all() {
    for (std::size_t i = 0; i < most_connections_; ++i) {
      auto socket = accept_from(listener_);
      if (!socket) return;
      let_in(Connection(std::move(*socket)));
    }
  }

  /// Where too many connections say nothing, the oldest of them makes room.
  void let_in(Connection connection) {
    if (connections_.size() >= most_connections_) {
      const auto silent = std::find_if(connections_.begin(), connections_.end(),
                                       [](const Connection& other) { return !other.admitted(); });
      if (silent == connections_.end()) return;
      connections_.erase(silent);
    }
    connections_.push_back(std::move(connection));
  }

  void answer_all() {
    for (Connection& connection : connections_) {
      if (connection.stage() != Stage::waiting) continue;
      connection.tell(reception_.answer());
      part_if_gone(connection);
    }
  }

  Reception& reception_;
  Socket listener_;
  std::string job_;
  std::size_t most_connections_;
  std::vector<Connection> connections_;  // oldest first
};

std::string host_by_tcp(const Meeting& meeting, const TcpAddress& address,
                        const std::function<std::string()>& step, const core::Deadline& deadline) {
  Socket listener = listen_at(address.endpoint);
  Reception reception(meeting, answer_of(step));
  TcpHost(reception, std::move(listener), address.job, meeting.world).run(deadline);
  return open_answer(reception.answer());
}

/// Sends `outgoing` and returns rank 0's answer. Throws TransportError.
std::string converse(Socket& socket, std::string outgoing, const core::Deadline& deadline) {
  std::string incoming;
  for (;;) {
    const short events = outgoing.empty() ? POLLIN : POLLOUT;
    if (!socket.wait(events, deadline)) throw TransportError("connected, but not answered");
    const bool alive =
        outgoing.empty() ? socket.receive(incoming, answer_limit) : socket.send(outgoing);
    if (const auto answer = unframe(incoming, answer_limit)) return *answer;
    if (!alive) throw TransportError("the connection was closed before the answer");
  }
}

/// One attempt. Throws TransportError.
std::string ask(const TcpAddress& address, const std::string& greeting,
                const core::Deadline& deadline) {
  Socket socket = connect_to(address.endpoint, deadline);
  std::string answer = converse(socket, greeting, deadline);
  require_final(answer);
  std::string last(1, acknowledgement);
  socket.send(last);
  return answer;
}

std::string visit_by_tcp(const Meeting& meeting, const TcpAddress& address,
                         const std::function<std::string()>& step, const core::Deadline& deadline) {
  const Greeting greeting{meeting.world, meeting.rank, address.job, fresh_nonce(),
                          failure_of(step, meeting.rank)};
  const std::string message = frame(encode(greeting));
  std::string cause;
  Pause pause;
  do {
    try {
      return ask(address, message, deadline);
    } catch (const TransportError& error) {
      cause = error.record().cause;
    }
    pause(deadline);
  } while (!deadline.expired());
  raise_not_reached(greeting.failure, meeting.address, deadline.limit(), cause);
}

}  // namespace

std::string meet_by_tcp(const Meeting& meeting, const std::function<std::string()>& step,
                        const core::Deadline& deadline) {
  const TcpAddress address = parse(meeting.address);
  if (meeting.rank == 0) return host_by_tcp(meeting, address, step, deadline);
  return open_answer(visit_by_tcp(meeting, address, step, deadline));
}

}  // namespace safeshuffle::comm
