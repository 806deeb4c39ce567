// A timeline of what a device's queue does, beside the loading thread that enqueues it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/device.hpp"
#include "pipeline/phase_clock.hpp"

namespace safeshuffle::pipeline {

/// Records nothing unless the clock traces, and the queue works by itself. Not thread-safe.
class QueueTrace {
 public:
  /// Both must outlive it.
  QueueTrace(device::Queue& queue, PhaseClock& clock) : queue_(queue), clock_(clock) {}

  /// What is enqueued from now on belongs to the next `note`.
  void begin() {
    if (clock_.traces()) begin_ = queue_.mark();
  }

  /// What has been enqueued since `begin`, or since the last `note`. Throws TransportError.
  void note(const char* work, std::uint32_t wave) {
    if (!begin_) return;
    std::shared_ptr<const device::QueueMark> end = queue_.mark();
    work_.push_back({work + (" " + std::to_string(wave)), std::move(begin_), end});
    begin_ = std::move(end);
  }

  /// Adds all that was noted to the clock's spans. `await_queue` returns once the queue is idle.
  /// Throws TransportError, and what `await_queue` throws.
  template <class Await>
  void settle(const Await& await_queue) {
    if (work_.empty()) return;
    const Meeting last = compare_clocks(await_queue);
    const auto time = [&](const device::QueueMark& mark) {
      const std::chrono::duration<double> ago(mark.seconds_until(*last.mark));
      return last.time - std::chrono::duration_cast<core::Clock::duration>(ago);
    };
    for (const Work& work : work_) {
      clock_.note(Span::Track::stream, work.name, time(*work.begin), time(*work.end));
    }
  }

 private:
  struct Work {
    std::string name;
    std::shared_ptr<const device::QueueMark> begin;
    std::shared_ptr<const device::QueueMark> end;
  };

  /// When the queue came to a mark, by our clock.
  struct Meeting {
    std::unique_ptr<const device::QueueMark> mark;
    core::Clock::time_point time;
    core::Clock::duration error = core::Clock::duration::max();
  };

  /// Queues have a clock of their own, and reach a mark some time before we see it. Of several
  /// marks, this is the one that was seen soonest after it was set.
  template <class Await>
  Meeting compare_clocks(const Await& await_queue) {
    await_queue();
    Meeting best;
    for (int tries = 0; tries < 8; ++tries) {
      const core::Clock::time_point begin = core::Clock::now();
      auto mark = queue_.mark();
      await_queue();
      const core::Clock::duration error = (core::Clock::now() - begin) / 2;
      if (error < best.error) best = {std::move(mark), begin + error, error};
    }
    return best;
  }

  device::Queue& queue_;
  PhaseClock& clock_;
  std::shared_ptr<const device::QueueMark> begin_;
  std::vector<Work> work_;
};

}  // namespace safeshuffle::pipeline
