// Streams and events: real queues, each with a thread of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "support/simulated_gpu/device.hpp"
#include "support/simulated_gpu/handle_table.hpp"

namespace simulated_gpu {

/// A point in the work of a stream. Thread-safe.
class Marker {
 public:
  using Clock = std::chrono::steady_clock;

  void reach();
  bool reached() const;
  void wait() const;

  /// When it was reached.
  Clock::time_point time() const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool reached_ = false;
  Clock::time_point time_;
};

/// Operations that run one after the other, with small delays between them. Thread-safe. Its thread
/// ends by itself once the stream is closed and has no operation left: it is never joined, because
/// an operation may never end.
class Stream {
 public:
  using Operation = std::function<void()>;

  /// `flags` as for cudaStreamCreateWithFlags.
  static std::shared_ptr<Stream> start(Device& device, unsigned flags = cudaStreamNonBlocking);
  Stream(Device& device, unsigned flags) : device_(device), flags_(flags) {}

  Device& device() const noexcept { return device_; }

  /// Whether its work and that of the legacy default stream would wait for each other. Only the
  /// effect on captures is simulated.
  bool blocking() const noexcept { return (flags_ & cudaStreamNonBlocking) == 0; }

  /// For operations that access no memory: they run even after the GPU has failed.
  void enqueue(Operation operation);

  /// Work of the GPU: skipped after the GPU has failed, counted by fail_after.
  void enqueue_work(Operation operation);

  bool idle() const;
  void wait() const;

  /// No operation may be added afterwards.
  void close();

  /// Whether its work is captured into a graph. Only the query is simulated, no graph.
  std::atomic<bool>& capturing() noexcept { return capturing_; }

 private:
  void work();
  Operation next();
  void end_operation();

  Device& device_;
  unsigned flags_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<Operation> operations_;
  bool busy_ = false;
  bool closed_ = false;
  std::atomic<bool> capturing_{false};
};

/// The object behind a cudaEvent_t: the marker of its last record, null before the first.
struct Event {
  Device& device;
  unsigned flags = 0;
  std::mutex mutex;
  std::shared_ptr<Marker> marker;

  Event(Device& where, unsigned with) : device(where), flags(with) {}
  std::shared_ptr<Marker> last_record();
};

HandleTable<cudaStream_t, Stream>& streams();
HandleTable<cudaEvent_t, Event>& events();

/// The stream of a handle; the current GPU's default stream for null. Throws CudaFailure.
std::shared_ptr<Stream> find_stream(cudaStream_t handle);

/// The number of streams that this thread captures in global mode: unless it is 0, the thread must
/// not allocate.
int& captures_of_this_thread();

/// The number of blocking streams being captured: meanwhile, the legacy default stream must not be
/// used.
std::atomic<int>& captures_of_blocking_streams();

/// Whether this thread runs a callback that the program has enqueued.
bool& inside_callback();

}  // namespace simulated_gpu
