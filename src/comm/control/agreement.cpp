#include "comm/control/agreement.hpp"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <future>
#include <thread>
#include <utility>

#include "core/deadline.hpp"
#include "core/error_wire.hpp"
#include "core/thread.hpp"

namespace safeshuffle::comm {
namespace {

// The first byte of what a rank contributes.
constexpr char succeeded = '+';
constexpr char has_failed = '-';
constexpr char busy = '~';
constexpr char waiting = '.';  // succeeded; its result is not sent again in every round

std::string contribution(std::string_view mine, const std::optional<ErrorRecord>& error) {
  return error ? has_failed + core::encode(*error) : succeeded + std::string(mine);
}

[[noreturn]] void raise_from(Control& control, std::size_t rank, std::string_view encoded) {
  ErrorRecord record = core::decode_error(encoded);
  if (record.kind == ErrorKind::cancelled) control.end_cancel();
  record.rank = static_cast<std::int32_t>(rank);
  raise(std::move(record));
}

// One round: what all ranks contribute, unless one failed.
std::vector<std::string> gather(Control& control, std::string_view mine,
                                std::chrono::milliseconds timeout) {
  std::vector<std::string> all = control.all_gather(mine, core::Deadline(timeout));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) throw TransportError("a peer sent an empty control message");
    if (all[rank].front() == has_failed)
      raise_from(control, rank, std::string_view(all[rank]).substr(1));
  }
  return all;
}

// Returns a request to cancel on this rank, of which no other knows yet.
std::exception_ptr beat_or_cancel(const Heartbeat& beat) {
  try {
    beat();
  } catch (const CancelledError& error) {
    if (error.record().rank >= 0) throw;
    return std::current_exception();
  }
  return nullptr;
}

bool is_any(const std::vector<std::string>& contributions, char state) {
  return std::ranges::any_of(contributions,
                             [state](const std::string& text) { return text.front() == state; });
}

}  // namespace

std::vector<std::string> agree(Control& control, std::string_view mine,
                               const std::optional<ErrorRecord>& error,
                               std::chrono::milliseconds timeout) {
  const std::string outcome = contribution(mine, error);
  std::vector<std::string> all = gather(control, outcome, timeout);
  while (is_any(all, busy)) all = gather(control, {&waiting, 1}, timeout);
  if (is_any(all, waiting)) all = gather(control, outcome, timeout);
  for (std::string& text : all) text.erase(0, 1);
  return all;
}

std::vector<std::string> agree_on(Control& control, std::chrono::milliseconds timeout,
                                  const std::function<std::string()>& step) {
  return agree_with_heartbeat(control, timeout, [&step](const Heartbeat&) { return step(); });
}

std::vector<std::string> agree_with_heartbeat(
    Control& control, std::chrono::milliseconds timeout,
    const std::function<std::string(const Heartbeat&)>& step) {
  std::string mine;
  std::optional<ErrorRecord> error;
  bool in_round = false;
  core::Deadline next(timeout / 4);
  const Heartbeat beat = [&] {
    control.check_cancelled();
    if (!next.expired()) return;
    in_round = true;
    gather(control, {&busy, 1}, timeout);
    in_round = false;
    next.restart();
  };
  try {
    control.check_cancelled();
    mine = step(beat);
  } catch (...) {
    if (in_round) throw;  // all ranks know already
    error = core::current_error();
  }
  return agree(control, mine, error, timeout);
}

// A request to cancel on this rank waits for the computation: if this rank did not beat meanwhile,
// the others would take it for lost.
void beat_during(const Heartbeat& beat, const std::function<void()>& computation) {
  constexpr std::chrono::milliseconds between{20};
  std::packaged_task<void()> task(computation);
  std::future<void> result = task.get_future();
  std::thread thread = core::start_thread(std::move(task));
  std::exception_ptr cancelled;
  try {
    while (result.wait_for(between) != std::future_status::ready) {
      if (const auto request = beat_or_cancel(beat)) cancelled = request;
    }
  } catch (...) {
    thread.join();
    throw;
  }
  thread.join();
  result.get();
  if (cancelled) std::rethrow_exception(cancelled);
}

std::vector<std::string> agree_on_computation(Control& control, std::chrono::milliseconds timeout,
                                              const std::function<std::string()>& computation) {
  return agree_with_heartbeat(control, timeout, [&](const Heartbeat& beat) {
    std::string outcome;
    beat_during(beat, [&] { outcome = computation(); });
    return outcome;
  });
}

}  // namespace safeshuffle::comm
