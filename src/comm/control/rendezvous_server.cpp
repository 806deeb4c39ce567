// Rank 0's side of a rendezvous. Each other rank connects, greets and waits for the answer; if its
// connection breaks before, it connects again.
#include <algorithm>
#include <cstdint>
#include <poll.h>
#include <string_view>
#include <utility>

#include "safeshuffle/error.hpp"

#include "comm/control/rendezvous.hpp"
#include "comm/control/tcp_protocol.hpp"
#include "core/lost_peers.hpp"

namespace safeshuffle::comm {
namespace {

struct Connection {
  Socket socket;  // none once it is closed or left to the caller
  std::string incoming = {};
  std::optional<Greeting> greeting = {};
  bool admitted = false;  // as a rank of this group; others are soon disconnected
  core::Deadline patience{std::chrono::seconds(5)};  // a rank greets at once

  bool is_closed() const noexcept { return socket.descriptor() == -1; }
  void close() noexcept { socket = Socket(); }
};

class Server {
 public:
  Server(Socket listener, const Member& self, const std::string& job)
      : listener_(std::move(listener)),
        self_(self),
        job_(job),
        answered_(self.size),
        most_connections_(2 * std::size_t{self.size} + 64) {}

  std::vector<Socket> run(const core::Deadline& deadline) {
    while (!absent({}).empty() && !deadline.expired()) {
      serve_all(wait(deadline));
      accept_all();
      if (failure_ || absent(connections_).empty()) answer_all();
      std::erase_if(connections_, [](const Connection& one) { return one.is_closed(); });
    }
    if (!failure_ && !absent({}).empty()) {
      failure_ = core::lost_peers("rendezvous at " + self_.address, absent(connections_),
                                  deadline.limit());
      answer_all();
    }
    if (failure_) raise(std::move(*failure_));
    return std::move(answered_);
  }

 private:
  using Connections = std::vector<Connection>;

  /// Waits for activity on any connection or for a new one; returns what each socket is ready for.
  std::vector<pollfd> wait(const core::Deadline& deadline) {
    constexpr std::chrono::milliseconds look_around{500};  // to drop overdue connections
    std::vector<pollfd> entries;
    for (const Connection& one : connections_) {
      entries.push_back({one.socket.descriptor(), POLLIN, 0});
    }
    entries.push_back({listener_.descriptor(), POLLIN, 0});
    const auto time = std::min(look_around, deadline.remaining());
    poll(entries.data(), entries.size(), static_cast<int>(time.count()));
    return entries;
  }

  void serve_all(const std::vector<pollfd>& entries) {
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      Connection& one = connections_[i];
      if (entries[i].revents != 0) serve(one);
      if (!one.admitted && one.patience.expired()) one.close();
    }
  }

  void serve(Connection& connection) {
    try {
      if (!receive(connection)) return connection.close();
      if (!is_whole(connection.incoming)) return;
      greet(connection);
      if (!receive(connection)) connection.close();  // it may have left already
    } catch (const ConfigError& error) {
      refuse(connection, error.record().cause);
    } catch (const TransportError&) {
      connection.close();  // a port scanner, or a program that uses the wrong port
    }
  }

  /// False once the peer has left, or if it says more than a greeting.
  static bool receive(Connection& connection) {
    return receive_frame(connection.socket, connection.incoming, greeting_limit) &&
           (!connection.greeting || connection.incoming.empty());
  }

  /// Lets the rank wait for the answer, or rejects it at once with the reason.
  void greet(Connection& connection) {
    const std::string frame = std::exchange(connection.incoming, {});
    connection.greeting = decode_greeting(std::string_view(frame).substr(frame_header));
    if (connection.greeting->job != job_) {
      answer(connection, later("another job is using this port"));
    } else if (const auto cause = contradiction(*connection.greeting); !cause.empty()) {
      refuse(connection, cause);
    } else {
      connection.admitted = true;
    }
  }

  /// Why the greeting cannot come from a rank of this group; empty if it can.
  std::string contradiction(const Greeting& greeting) const {
    const std::string who = "rank " + std::to_string(greeting.rank);
    const std::string size = std::to_string(self_.size);
    if (greeting.size != self_.size) {
      return "the group has " + size + " ranks according to rank 0, but " +
             std::to_string(greeting.size) + " according to " + who;
    }
    if (greeting.rank == 0 || greeting.rank >= self_.size) {
      return who + " is not a valid rank in a group of " + size + " ranks";
    }
    return is_taken(greeting) ? "two processes claim to be " + who : "";
  }

  /// Whether another process is already waiting as this rank.
  bool is_taken(const Greeting& greeting) const {
    return !failure_ && std::ranges::any_of(connections_, [&](const Connection& other) {
      return other.admitted && !other.is_closed() && other.greeting->rank == greeting.rank &&
             other.greeting->nonce != greeting.nonce;
    });
  }

  /// Makes `cause` the answer to all ranks, if none is decided.
  void refuse(Connection& connection, const std::string& cause) {
    const ErrorRecord refusal{.kind = ErrorKind::config, .rank = 0, .cause = cause};
    if (!failure_) failure_ = refusal;
    answer(connection, answer_of(refusal));
  }

  /// The answer fits into the system's buffer. The connection is then left to the caller, if it is
  /// one of this group.
  void answer(Connection& connection, const std::string& text) {
    std::size_t sent = 0;
    connection.socket.send(frame(text), sent);
    const std::uint64_t rank = connection.greeting ? connection.greeting->rank : 0;
    const bool ours = connection.greeting && connection.greeting->job == job_;
    if (ours && rank < self_.size) answered_[rank] = std::move(connection.socket);
    connection.close();
  }

  void answer_all() {
    for (Connection& one : connections_) {
      if (one.admitted && !one.is_closed()) answer(one, answer_of(failure_));
    }
  }

  /// A limited number at a time, so that a flood of connections cannot block the server.
  void accept_all() {
    for (std::size_t i = 0; i < most_connections_; ++i) {
      auto socket = accept_from(listener_);
      if (!socket) return;
      add({std::move(*socket)});
    }
  }

  /// If there are too many connections, closes the oldest one without a greeting.
  void add(Connection connection) {
    if (connections_.size() >= most_connections_) {
      const auto silent = std::ranges::find(connections_, false, &Connection::admitted);
      if (silent == connections_.end()) return;
      connections_.erase(silent);
    }
    connections_.push_back(std::move(connection));
  }

  /// The other ranks that are neither answered nor admitted among `connections`.
  std::vector<std::uint32_t> absent(const Connections& connections) const {
    std::vector<bool> present(self_.size);
    for (const Connection& one : connections) {
      if (one.admitted && !one.is_closed()) present[one.greeting->rank] = true;
    }
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t rank = 1; rank < self_.size; ++rank) {
      if (!present[rank] && answered_[rank].descriptor() == -1) ranks.push_back(rank);
    }
    return ranks;
  }

  Socket listener_;
  Member self_;
  std::string job_;
  std::optional<ErrorRecord> failure_;  ///< what all ranks throw
  std::vector<Socket> answered_;        ///< by rank
  std::size_t most_connections_;
  Connections connections_;  ///< oldest first
};

}  // namespace

std::vector<Socket> serve_rendezvous(Socket listener, const Member& self, const std::string& job,
                                     const core::Deadline& deadline) {
  return Server(std::move(listener), self, job).run(deadline);
}

}  // namespace safeshuffle::comm
