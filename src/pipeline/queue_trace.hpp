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

  /// Ends the timeline. Returns whether there is one to `settle`, when the queue is idle again: it
  /// must be idle now. Throws TransportError.
  bool end() {
    if (!work_.empty()) end_ = queue_.mark();
    return end_ != nullptr;
  }

  /// Adds all that was noted to the clock's spans. Queues have a clock of their own: the end was
  /// just now. Throws TransportError.
  void settle() {
    const core::Clock::time_point now = core::Clock::now();
    const auto time = [&](const device::QueueMark& mark) {
      const std::chrono::duration<double> ago(mark.seconds_until(*end_));
      return now - std::chrono::duration_cast<core::Clock::duration>(ago);
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

  device::Queue& queue_;
  PhaseClock& clock_;
  std::shared_ptr<const device::QueueMark> begin_;
  std::shared_ptr<const device::QueueMark> end_;
  std::vector<Work> work_;
};

}  // namespace safeshuffle::pipeline
