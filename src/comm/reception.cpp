#include "comm/reception.hpp"

#include <algorithm>
#include <utility>

#include "comm/lost_peers.hpp"

namespace safeshuffle::comm {

Reception::Reception(const Meeting& meeting, std::string answer)
    : meeting_(meeting),
      answer_(std::move(answer)),
      released_(is_failure(answer_)),
      guests_(meeting.world) {
  guests_.front() = {"rank 0", true};
}

std::optional<std::string> Reception::greet(const Greeting& greeting) {
  const std::string cause = contradiction(greeting);
  if (!cause.empty()) return refuse(cause);
  Guest& guest = guests_[greeting.rank];
  if (guest.served) return later("this rank has had its answer already");
  // Too late for the others: this rank was here before, and was ready.
  const bool too_late = released_ && !is_failure(answer_);
  if (greeting.failure && too_late) return answer_of(as_own(*greeting.failure));
  guest.nonce = greeting.nonce;
  if (greeting.failure) failures_.emplace(greeting.rank, *greeting.failure);
  return std::nullopt;
}

std::string Reception::refuse(const std::string& cause) {
  std::string refusal = answer_of([&]() -> std::string { throw ConfigError(cause); });
  if (!std::exchange(released_, true)) answer_ = refusal;
  return refusal;
}

bool Reception::release() {
  if (released_) return true;
  if (!failures_.empty()) answer_ = answer_of(failures_.begin()->second);
  released_ = is_failure(answer_) || all_here();
  return released_;
}

/// Why the greeting cannot be that of a rank of this meeting; empty if it can.
std::string Reception::contradiction(const Greeting& greeting) const {
  const std::string who = "rank " + std::to_string(greeting.rank);
  if (greeting.world != meeting_.world) {
    return "the world has " + std::to_string(meeting_.world) + " ranks for rank 0, but " +
           std::to_string(greeting.world) + " for " + who;
  }
  if (greeting.rank == 0 || greeting.rank >= meeting_.world) {
    return who + " is not one of the ranks that rank 0 waits for";
  }
  const Guest& guest = guests_[greeting.rank];
  const bool taken = !guest.served && !guest.nonce.empty() && guest.nonce != greeting.nonce;
  return taken ? "two processes claim to be " + who : "";
}

void Reception::leave(std::uint64_t rank) {
  if (rank < guests_.size()) guests_[rank].nonce.clear();
}

void Reception::serve(std::uint64_t rank) {
  if (rank < guests_.size()) guests_[rank].served = true;
}

void Reception::give_up(std::chrono::milliseconds limit) {
  released_ = true;
  if (is_failure(answer_)) return;
  answer_ = answer_of([&]() -> std::string {
    raise_lost_peers("meeting at " + meeting_.address, missing(), limit);
  });
}

bool Reception::over() const noexcept {
  return std::all_of(guests_.begin(), guests_.end(), [](const Guest& g) { return g.served; });
}

bool Reception::all_here() const noexcept {
  return std::none_of(guests_.begin(), guests_.end(),
                      [](const Guest& guest) { return guest.nonce.empty(); });
}

/// The ranks that are not here; if all are, those without the answer.
std::vector<std::uint32_t> Reception::missing() const {
  std::vector<std::uint32_t> absent;
  std::vector<std::uint32_t> unserved;
  for (std::uint32_t rank = 0; rank < guests_.size(); ++rank) {
    if (guests_[rank].served) continue;
    unserved.push_back(rank);
    if (guests_[rank].nonce.empty()) absent.push_back(rank);
  }
  return absent.empty() ? unserved : absent;
}

}  // namespace safeshuffle::comm
