#include "support/simulated_gpu/stream.hpp"

#include <atomic>
#include <thread>
#include <utility>

#include "support/simulated_gpu/call.hpp"
#include "support/simulated_gpu/chance.hpp"
#include "support/simulated_gpu/faults.hpp"
#include "support/simulated_gpu/inspect.hpp"
#include "support/simulated_gpu/violations.hpp"

namespace simulated_gpu {
namespace {

constexpr std::chrono::microseconds longest_delay{300};

std::uint64_t next_stream_number() {
  static std::atomic<std::uint64_t> count{0};
  return ++count;
}

}  // namespace

void Marker::reach() {
  const std::scoped_lock lock(mutex_);
  reached_ = true;
  time_ = Clock::now();
  changed_.notify_all();
}

bool Marker::reached() const {
  const std::scoped_lock lock(mutex_);
  return reached_;
}

void Marker::wait() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return reached_; });
}

Marker::Clock::time_point Marker::time() const {
  const std::scoped_lock lock(mutex_);
  return time_;
}

std::shared_ptr<Stream> Stream::start(Device& device, unsigned flags) {
  auto stream = std::make_shared<Stream>(device, flags);
  std::thread([stream] { stream->work(); }).detach();
  return stream;
}

void Stream::enqueue(Operation operation) {
  const std::scoped_lock lock(mutex_);
  if (closed_) return report_violation("work enqueued on a stream that was destroyed");
  operations_.push_back(std::move(operation));
  changed_.notify_all();
}

void Stream::enqueue_work(Operation operation) {
  const bool fails = next_operation_fails();
  enqueue([this, fails, operation = std::move(operation)] {
    if (device_.error() != cudaSuccess) return;
    if (fails) return device_.fail(cudaErrorIllegalAddress);
    try {
      operation();
    } catch (const DeviceFault&) {
      device_.fail(cudaErrorIllegalAddress);
    }
  });
}

bool Stream::idle() const {
  const std::scoped_lock lock(mutex_);
  return !busy_ && operations_.empty();
}

void Stream::wait() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !busy_ && operations_.empty(); });
}

void Stream::close() {
  const std::scoped_lock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void Stream::work() {
  Chance chance(next_stream_number());
  while (Operation operation = next()) {
    if (chance.once_in(4)) chance.pause(longest_delay);
    operation();
    operation = nullptr;  // releases what it keeps alive before the stream is idle
    end_operation();
  }
}

Stream::Operation Stream::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || !operations_.empty(); });
  if (operations_.empty()) return {};
  Operation operation = std::move(operations_.front());
  operations_.pop_front();
  busy_ = true;
  return operation;
}

void Stream::end_operation() {
  const std::scoped_lock lock(mutex_);
  busy_ = false;
  changed_.notify_all();
}

std::shared_ptr<Marker> Event::last_record() {
  const std::scoped_lock lock(mutex);
  return marker;
}

HandleTable<cudaStream_t, Stream>& streams() {
  static auto* const table = new HandleTable<cudaStream_t, Stream>;
  return *table;
}

HandleTable<cudaEvent_t, Event>& events() {
  static auto* const table = new HandleTable<cudaEvent_t, Event>;
  return *table;
}

std::shared_ptr<Stream> find_stream(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return current_device().default_stream();
  auto stream = streams().find(handle);
  if (!stream) throw CudaFailure{cudaErrorInvalidResourceHandle};
  return stream;
}

int& captures_of_this_thread() {
  thread_local int captures = 0;
  return captures;
}

std::atomic<int>& captures_of_blocking_streams() {
  static std::atomic<int> captures{0};
  return captures;
}

bool& inside_callback() {
  thread_local bool inside = false;
  return inside;
}

std::size_t live_streams() {
  return streams().size();
}

std::size_t live_events() {
  return events().size();
}

}  // namespace simulated_gpu
