#include "comm/control/tcp_control.hpp"

#include <algorithm>
#include <limits>
#include <poll.h>
#include <thread>
#include <utility>

#include "safeshuffle/error.hpp"

#include "comm/control/tcp_protocol.hpp"
#include "core/error_wire.hpp"
#include "core/lost_peers.hpp"
#include "core/wire.hpp"

namespace safeshuffle::comm {
namespace {

/// Rank 0 gives up first and tells the others why; they wait this much longer for it.
constexpr std::chrono::milliseconds notice{500};

// The text of a frame begins with its owner: the rank that it comes from, or the size of the group
// for rank 0's verdict.
constexpr std::size_t text_begin = frame_header + sizeof(std::uint64_t);

std::string frame_of(std::uint64_t owner, std::string_view text) {
  return frame(core::WireWriter().put_fixed(owner).take().append(text));
}

/// A connection and what has been transferred over it in one round.
struct Link {
  std::uint32_t peer;
  Socket& socket;
  std::string incoming;      // of the frame being received
  std::size_t received = 0;  // whole frames
  std::size_t next = 0;      // position, in the order of arrival, of the frame to send next
  std::size_t sent = 0;      // bytes of that frame
};

/// One all_gather. Rank 0 passes each text on as soon as it has it, so that every rank sees whether
/// there is progress.
class Round {
 public:
  Round(const Control& group, std::vector<Socket>& connections, std::string_view mine)
      : rank_(group.rank()), size_(group.size()), frames_(size_ + 1) {
    for (std::uint32_t i = 0; i < connections.size(); ++i) {
      if (rank_ != 0 || i != 0) links_.push_back({i, connections[i], {}});
    }
    add(rank_, frame_of(rank_, mine));
  }

  std::vector<std::string> run(core::Deadline deadline) {
    const auto limit = deadline.limit();
    if (rank_ != 0) deadline = core::Deadline(limit + notice);
    deadline.restart();
    for (send_all(); order_.size() < size_ || !all_sent(); send_all()) {
      if (!transfer(deadline)) give_up(core::lost_peers(operation, missing(), limit));
      deadline.restart();
    }
    frames_.pop_back();
    for (std::string& frame : frames_) frame.erase(0, text_begin);
    return std::move(frames_);
  }

 private:
  static constexpr const char* operation = "gathering from all ranks";

  std::size_t expected() const { return rank_ == 0 ? 1 : size_ - 1; }

  bool has_all_of(const Link& link) const { return link.received == expected(); }
  bool has_sent_all(const Link& link) const { return link.next == order_.size(); }

  bool all_sent() const {
    return std::ranges::all_of(links_, [this](const Link& link) { return has_sent_all(link); });
  }

  /// Waits until something can be transferred, and does; false if the deadline has expired.
  bool transfer(const core::Deadline& deadline) {
    constexpr std::chrono::milliseconds longest{60'000};
    std::vector<pollfd> entries;
    for (const Link& link : links_) {
      const int events = (has_all_of(link) ? 0 : POLLIN) | (has_sent_all(link) ? 0 : POLLOUT);
      const int descriptor = events == 0 ? -1 : link.socket.descriptor();
      entries.push_back({descriptor, static_cast<short>(events), 0});
    }
    while (!deadline.expired()) {
      const auto time = std::min(longest, deadline.remaining());
      if (poll(entries.data(), entries.size(), static_cast<int>(time.count())) <= 0) continue;
      for (std::size_t i = 0; i < links_.size(); ++i) {
        if (entries[i].revents != 0) receive(links_[i]);
      }
      return true;
    }
    return false;
  }

  void receive(Link& link) {
    while (!has_all_of(link)) {
      const std::uint64_t any = std::numeric_limits<std::uint64_t>::max();
      if (!receive_frame(link.socket, link.incoming, any)) give_up(disconnected(link.peer));
      if (!is_whole(link.incoming)) return;
      accept(link);
    }
  }

  void accept(Link& link) {
    const std::string_view frame = link.incoming;
    const std::uint64_t owner = core::WireReader(frame.substr(frame_header)).fixed_number();
    if (rank_ != 0 && owner == size_) raise(core::decode_error(frame.substr(text_begin)));
    const bool fitting = rank_ == 0 ? owner == link.peer : owner < size_;
    if (!fitting || !frames_[owner].empty()) {
      throw TransportError("a peer sent an unexpected control message");
    }
    ++link.received;
    add(static_cast<std::uint32_t>(owner), std::exchange(link.incoming, {}));
  }

  void add(std::uint32_t owner, std::string frame) {
    frames_[owner] = std::move(frame);
    order_.push_back(owner);
  }

  void send_all() {
    for (Link& link : links_) send(link);
  }

  /// As much as the system accepts. A peer that has disconnected is missed when it is to send.
  void send(Link& link) {
    for (; !has_sent_all(link); ++link.next, link.sent = 0) {
      const std::uint32_t owner = order_[link.next];
      if (rank_ == 0 ? owner == link.peer : owner != rank_) continue;
      const std::string& frame = frames_[owner];
      if (!link.socket.send(frame, link.sent)) link.sent = frame.size();
      if (link.sent < frame.size()) return;
    }
  }

  /// On rank 0, those that have sent nothing, else those that do not receive. The others know only
  /// that rank 0 has not told them.
  std::vector<std::uint32_t> missing() const {
    if (rank_ != 0) return {0};
    std::vector<std::uint32_t> silent;
    std::vector<std::uint32_t> deaf;
    for (const Link& link : links_) {
      if (!has_all_of(link)) silent.push_back(link.peer);
      if (!has_sent_all(link)) deaf.push_back(link.peer);
    }
    return silent.empty() ? deaf : silent;
  }

  static ErrorRecord disconnected(std::uint32_t peer) {
    return {.kind = ErrorKind::timeout,
            .rank = static_cast<std::int32_t>(peer),
            .cause = std::string(operation) + ": the rank has ended or closed its connection"};
  }

  [[noreturn]] void give_up(const ErrorRecord& error) {
    if (rank_ == 0) tell(error);
    raise(error);
  }

  void tell(const ErrorRecord& verdict) {
    add(size_, frame_of(size_, core::encode(verdict)));
    const core::Deadline deadline(notice / 2);
    for (send_all(); !all_sent() && !deadline.expired(); send_all()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  std::uint32_t rank_;
  std::uint32_t size_;
  std::vector<Link> links_;
  std::vector<std::string> frames_;   // by owner; the verdict last
  std::vector<std::uint32_t> order_;  // of the frames that are here, by arrival
};

class TcpControl final : public Control {
 public:
  TcpControl(std::uint32_t rank, std::uint32_t size, std::vector<Socket> connections)
      : Control(rank, size), connections_(std::move(connections)) {}

  std::string name() const override { return "tcp"; }

  std::vector<std::string> all_gather(std::string_view mine, core::Deadline deadline) override {
    if (connections_.empty()) {
      throw TransportError("the control connections were closed after an earlier failure");
    }
    try {
      return Round(*this, connections_, mine).run(deadline);
    } catch (...) {
      connections_.clear();
      throw;
    }
  }

 private:
  std::vector<Socket> connections_;  // see rendezvous
};

}  // namespace

std::unique_ptr<Control> make_tcp_control(const Member& self, std::chrono::milliseconds timeout,
                                          std::optional<Socket> listener) {
  auto connections = rendezvous(self, timeout, std::move(listener));
  return std::make_unique<TcpControl>(self.rank, self.size, std::move(connections));
}

}  // namespace safeshuffle::comm
