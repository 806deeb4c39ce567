#include "comm/await.hpp"

#include <utility>

#include "safeshuffle/error.hpp"

#include "core/backoff.hpp"
#include "core/lost_peers.hpp"

namespace safeshuffle::comm {
namespace {

/// More than for reads, so that a rank whose storage stalls is the first to give up, and can tell
/// the others.
constexpr std::chrono::milliseconds stall_notice{500};

/// Ranks that start an exchange together time out within this interval of each other.
constexpr std::chrono::milliseconds answer_patience{1500};

std::vector<std::uint32_t> missing(const Pending& pending, Control& control) {
  const std::vector<std::uint32_t> known = pending.missing();
  return known.empty() ? unresponsive_ranks(control, answer_patience) : known;
}

/// Whether it is done. Names the rank if the exchange only knows that one is lost: the others learn
/// of it when they, too, have lost it or timed out.
bool is_done(Pending& pending, Control& control, std::chrono::milliseconds limit) {
  try {
    return pending.done();
  } catch (const TimeoutError& error) {
    ErrorRecord record = error.record();
    const auto lost = unresponsive_ranks(control, limit + answer_patience);
    if (!lost.empty()) record.rank = static_cast<std::int32_t>(lost.front());
    raise(std::move(record));
  }
}

}  // namespace

void await(Pending& pending, Control& control, const std::string& what,
           std::chrono::milliseconds timeout, const std::function<void()>& meanwhile) {
  const core::Deadline deadline(core::Deadline(timeout).limit() + stall_notice);
  core::Backoff backoff;
  std::size_t progress = pending.progress();
  while (!is_done(pending, control, deadline.limit())) {
    if (deadline.expired()) raise(core::lost_peers(what, missing(pending, control), timeout));
    meanwhile();
    // Where MPI may not read the memory of other processes, it moves a few kilobytes with each
    // poll: sleeping between them would make the exchange several times as long.
    const std::size_t before = std::exchange(progress, pending.progress());
    if (progress != before) backoff = {};
    backoff.pause();
  }
}

}  // namespace safeshuffle::comm
