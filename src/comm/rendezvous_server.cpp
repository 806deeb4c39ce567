#include "comm/rendezvous_server.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <poll.h>
#include <string_view>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"

#include "comm/lost_peers.hpp"
#include "comm/rendezvous_protocol.hpp"

namespace safeshuffle::comm {
namespace {

/// One connection: its peer greets, waits for the answer, receives and acknowledges it.
class Connection {
 public:
  enum class Stage { greeting, waiting, answered, closed };

  explicit Connection(Socket socket) : socket_(std::move(socket)) {}

  Stage stage() const noexcept { return stage_; }
  bool is_closed() const noexcept { return stage_ == Stage::closed; }

  /// Empty before stage `waiting`.
  const Greeting& greeting() const noexcept { return greeting_; }

  /// Whether the peer is a rank of this group; others are soon disconnected.
  bool is_admitted() const noexcept { return admitted_; }
  void admit() noexcept { admitted_ = true; }
  bool is_overdue() const noexcept { return !admitted_ && patience_.expired(); }

  bool has_acknowledged() const noexcept {
    return is_closed() && incoming_ == std::string_view(&acknowledgement, 1);
  }

  pollfd poll_entry() const {
    const short events = outgoing_.empty() ? POLLIN : POLLOUT;
    return {socket_.descriptor(), events, 0};
  }

  /// Does what the socket allows. Throws what `unframe` and `decode_greeting` throw.
  void transfer() {
    const bool alive =
        outgoing_.empty() ? socket_.receive(incoming_, greeting_limit) : socket_.send(outgoing_);
    if (!alive) return close();
    if (stage_ == Stage::greeting) return decode();
    if (!incoming_.empty()) close();  // the acknowledgement; nothing else is expected
  }

  void send_answer(std::string_view answer) {
    outgoing_ = frame(answer);
    stage_ = Stage::answered;
    if (!socket_.send(outgoing_)) close();
  }

  void close() noexcept { stage_ = Stage::closed; }

 private:
  void decode() {
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

/// Does nothing if there is no such rank: peers may claim any number.
void mark(std::vector<bool>& ranks, std::uint64_t rank) {
  if (rank < ranks.size()) ranks[rank] = true;
}

std::vector<std::uint32_t> unmarked(const std::vector<bool>& ranks) {
  std::vector<std::uint32_t> result;
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank]) result.push_back(rank);
  }
  return result;
}

class Server {
 public:
  Server(Socket listener, const Bootstrap& self, const std::string& job, std::string answer)
      : listener_(std::move(listener)),
        address_(self.address),
        job_(job),
        answer_(std::move(answer)),
        decided_(is_failure(answer_)),
        acknowledged_(self.size),
        most_connections_(2 * std::size_t{self.size} + 64) {
    mark(acknowledged_, 0);
  }

  std::string run(const core::Deadline& deadline) {
    while (!unmarked(acknowledged_).empty() && !deadline.expired()) {
      serve_all(wait(deadline));
      accept_all();
      decide();
      if (decided_) answer_all();
      std::erase_if(connections_, [](const Connection& one) { return one.is_closed(); });
    }
    if (!unmarked(acknowledged_).empty()) give_up(deadline.limit());
    return answer_;
  }

 private:
  using Stage = Connection::Stage;

  /// Waits for activity on any connection or for a new one; returns what each socket is ready for.
  std::vector<pollfd> wait(const core::Deadline& deadline) {
    constexpr std::chrono::milliseconds look_around{500};  // to drop overdue connections
    std::vector<pollfd> entries;
    for (const Connection& connection : connections_) entries.push_back(connection.poll_entry());
    entries.push_back({listener_.descriptor(), POLLIN, 0});
    const auto time = std::min(look_around, deadline.remaining());
    poll(entries.data(), entries.size(), static_cast<int>(time.count()));
    return entries;
  }

  void serve_all(const std::vector<pollfd>& entries) {
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      Connection& connection = connections_[i];
      if (entries[i].revents != 0 && !connection.is_closed()) serve(connection);
      if (connection.is_overdue()) connection.close();
    }
  }

  void serve(Connection& connection) {
    const bool was_greeting = connection.stage() == Stage::greeting;
    try {
      connection.transfer();
      if (was_greeting && connection.stage() == Stage::waiting) receive_greeting(connection);
    } catch (const ConfigError& error) {
      refuse(connection, error.record().cause);
    } catch (const TransportError&) {
      connection.close();  // a port scanner, or a program that uses the wrong port
    }
    if (connection.is_admitted() && connection.has_acknowledged()) {
      mark(acknowledged_, connection.greeting().rank);
    }
  }

  /// Lets the rank wait for the answer, or rejects it at once with the reason.
  void receive_greeting(Connection& connection) {
    const Greeting& greeting = connection.greeting();
    if (greeting.job != job_) {
      return connection.send_answer(later("another job is using this port"));
    }
    if (const auto cause = contradiction(greeting); !cause.empty()) {
      return refuse(connection, cause);
    }
    if (acknowledged_[greeting.rank]) {
      return connection.send_answer(later("rank 0 has already replied to this rank"));
    }
    const bool too_late = decided_ && !is_failure(answer_);  // this rank was ready before
    if (greeting.failure && too_late) {
      return connection.send_answer(answer_of(as_own(*greeting.failure)));
    }
    connection.admit();
  }

  /// Why the greeting cannot come from a rank of this group; empty if it can.
  std::string contradiction(const Greeting& greeting) const {
    const std::uint64_t size = acknowledged_.size();
    const std::string who = "rank " + std::to_string(greeting.rank);
    if (greeting.size != size) {
      return "the group has " + std::to_string(size) + " ranks according to rank 0, but " +
             std::to_string(greeting.size) + " according to " + who;
    }
    if (greeting.rank == 0 || greeting.rank >= size) {
      return who + " is not a valid rank in a group of " + std::to_string(size) + " ranks";
    }
    return is_taken(greeting) ? "two processes claim to be " + who : "";
  }

  /// Whether another process is already waiting as this rank.
  bool is_taken(const Greeting& greeting) const {
    if (is_failure(answer_) || acknowledged_[greeting.rank]) return false;
    return std::any_of(connections_.begin(), connections_.end(), [&](const Connection& other) {
      return other.is_admitted() && !other.is_closed() && other.greeting().rank == greeting.rank &&
             other.greeting().nonce != greeting.nonce;
    });
  }

  /// Makes `cause` the answer to all ranks, unless one is already decided.
  void refuse(Connection& connection, const std::string& cause) {
    const std::string refusal =
        answer_of(ErrorRecord{.kind = ErrorKind::config, .rank = 0, .cause = cause});
    if (!std::exchange(decided_, true)) answer_ = refusal;
    if (refusal == answer_) connection.admit();
    connection.send_answer(refusal);
  }

  /// A limited number at a time, so that a flood of connections cannot block the server.
  void accept_all() {
    for (std::size_t i = 0; i < most_connections_; ++i) {
      auto socket = accept_from(listener_);
      if (!socket) return;
      add(Connection(std::move(*socket)));
    }
  }

  /// If there are too many connections, closes the oldest one without a greeting.
  void add(Connection connection) {
    if (connections_.size() >= most_connections_) {
      const auto silent =
          std::find_if(connections_.begin(), connections_.end(),
                       [](const Connection& other) { return !other.is_admitted(); });
      if (silent == connections_.end()) return;
      connections_.erase(silent);
    }
    connections_.push_back(std::move(connection));
  }

  /// Decides the answer if all ranks are present or one has failed. Called after the greetings that
  /// arrived together were read: of several failures, that of the lowest rank becomes the answer.
  void decide() {
    if (decided_) return;
    const Connection* failed = nullptr;
    for (const Connection& one : connections_) {
      if (one.stage() != Stage::waiting || !one.greeting().failure) continue;
      if (failed == nullptr || one.greeting().rank < failed->greeting().rank) failed = &one;
    }
    if (failed != nullptr) answer_ = answer_of(*failed->greeting().failure);
    decided_ = failed != nullptr || unmarked(present()).empty();
  }

  /// Which ranks have arrived, by rank.
  std::vector<bool> present() const {
    std::vector<bool> ranks = acknowledged_;
    for (const Connection& one : connections_) {
      if (one.is_admitted() && !one.is_closed()) mark(ranks, one.greeting().rank);
    }
    return ranks;
  }

  void answer_all() {
    for (Connection& connection : connections_) {
      if (connection.stage() == Stage::waiting) connection.send_answer(answer_);
    }
  }

  /// Unless the ranks have already failed, the answer becomes the error that names those that have
  /// not arrived, or, if all have, those that have not acknowledged the answer.
  void give_up(std::chrono::milliseconds limit) {
    if (!is_failure(answer_)) {
      const std::vector<std::uint32_t> absent = unmarked(present());
      answer_ = answer_of([&]() -> std::string {
        raise_lost_peers("rendezvous at " + address_,
                         absent.empty() ? unmarked(acknowledged_) : absent, limit);
      });
    }
    answer_all();
  }

  Socket listener_;
  std::string address_;
  std::string job_;
  std::string answer_;
  bool decided_;                    ///< whether the answer is final
  std::vector<bool> acknowledged_;  ///< by rank; always true for rank 0 itself
  std::size_t most_connections_;
  std::vector<Connection> connections_;  ///< oldest first
};

}  // namespace

std::string serve_rendezvous(Socket listener, const Bootstrap& self, const std::string& job,
                             std::string answer, const core::Deadline& deadline) {
  return Server(std::move(listener), self, job, std::move(answer)).run(deadline);
}

}  // namespace safeshuffle::comm
