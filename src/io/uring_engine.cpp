#include "io/uring_engine.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <liburing.h>
#include <mutex>
#include <optional>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "safeshuffle/error.hpp"

#include "core/backoff.hpp"
#include "core/descriptor.hpp"
#include "core/system_call.hpp"
#include "core/thread.hpp"
#include "core/thread_pool.hpp"

namespace safeshuffle::io {
namespace {

// Of one call; longer ones are made in parts, as short reads are.
constexpr std::size_t most_bytes = std::size_t{1} << 30;

/// Owner of one ring. Used by one thread at a time.
class Ring {
 public:
  explicit Ring(unsigned entries) {
    const int result = ::io_uring_queue_init(entries, &ring_, 0);
    if (result < 0) core::raise_errno(-result, {}, "io_uring is not available");
  }
  ~Ring() { ::io_uring_queue_exit(&ring_); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  /// An entry to fill.
  io_uring_sqe* entry() noexcept {
    for (;;) {
      if (io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_)) return entry;
      static_cast<void>(::io_uring_submit(&ring_));  // all are filled
    }
  }

  /// Submits all entries and waits until a call is complete. Returns false if the kernel refused.
  bool submit_and_wait() noexcept {
    const int result = ::io_uring_submit_and_wait(&ring_, 1);
    return result >= 0 || result == -EINTR;
  }

  /// Calls handle(data, result) for each call that is complete.
  template <typename Handle>
  void complete(const Handle& handle) {
    for (io_uring_cqe* entry = nullptr; ::io_uring_peek_cqe(&ring_, &entry) == 0;) {
      void* const data = ::io_uring_cqe_get_data(entry);
      const int result = entry->res;
      ::io_uring_cqe_seen(&ring_, entry);
      handle(data, result);
    }
  }

 private:
  io_uring ring_{};
};

/// A job on its way.
struct Flight {
  std::unique_ptr<Job> job;
  RangeRead* reading = nullptr;
  RangeRead::Call call;               // the present one, or the next
  std::shared_ptr<Flight> in_kernel;  // itself, while the kernel has its address

  /// Whether the ring can make the call.
  bool is_for_ring() const noexcept { return call.direct && call.handle->descriptor() != -1; }

  /// The kernel's result of the call. Throws IoError.
  void done(int result) {
    if (result >= 0) return reading->done(static_cast<std::size_t>(result));
    if (result == -EINTR || result == -EAGAIN) return;  // to be made again
    try {
      core::raise_errno(-result, reading->path(), "cannot read", call.offset);
    } catch (const IoError& error) {
      reading->failed(error);
    }
  }
};

using Flights = std::deque<std::shared_ptr<Flight>>;

class UringEngine final : public Engine {
 public:
  UringEngine(std::size_t depth, unsigned threads)
      : depth_(depth),
        threads_(threads),
        ring_(static_cast<unsigned>(depth + 1)),  // one for `expect_wake`
        wake_(::eventfd(0, EFD_CLOEXEC)) {
    if (!wake_) core::raise_errno(errno, {}, "eventfd");
    pool_.emplace(threads);
    submitter_ = core::start_thread([this] { work(); });
  }

  ~UringEngine() override {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    wake();
    submitter_.join();
  }

  void start(std::unique_ptr<Job> job) override {
    auto flight = std::make_shared<Flight>();
    flight->job = std::move(job);
    const std::scoped_lock lock(mutex_);
    unbegun_.push_back(std::move(flight));
    try {
      begin_next();
    } catch (...) {
      unbegun_.pop_back();
      throw;
    }
  }

  std::string name() const override {
    if (!ring_used_) return "posix";
    return pool_used_ ? "uring+posix" : "uring";
  }

  unsigned threads() const noexcept override { return threads_ + 1; }

 private:
  /// Takes a step of a job, which makes its next call known; returns whether there is one.
  /// Otherwise ends the job.
  template <typename Step>
  bool goes_on(Flight& flight, const Step& step) {
    std::exception_ptr error;
    try {
      step();
      if (const auto call = flight.reading->next()) {
        flight.call = *call;
        return true;
      }
    } catch (...) {
      error = std::current_exception();
    }
    flight.job->end(error);
    ended();
    return false;
  }

  /// Under the lock. Jobs keep their files open from their begin to their end: beyond those whose
  /// reads are in flight, each thread prepares one.
  void begin_next() {
    if (unbegun_.empty() || begun_ == depth_ + threads_) return;
    pool_->submit([this, flight = unbegun_.front()] { begin(flight); });
    unbegun_.pop_front();
    ++begun_;
  }

  void ended() {
    const std::scoped_lock lock(mutex_);
    --begun_;
    begin_next();
  }

  // What threads of the pool do: open files, and read what is not for the ring.

  void begin(const std::shared_ptr<Flight>& flight) {
    if (goes_on(*flight, [&] { flight->reading = &flight->job->begin(); })) read(flight);
  }

  void read(const std::shared_ptr<Flight>& flight) {
    do {
      if (flight->is_for_ring()) return hand_over(flight);
      pool_used_ = true;
    } while (goes_on(*flight, [&] { flight->reading->make(flight->call); }));
  }

  void hand_over(const std::shared_ptr<Flight>& flight) {
    {
      const std::scoped_lock lock(mutex_);
      waiting_.push_back(flight);
    }
    wake();
  }

  void wake() noexcept { static_cast<void>(::eventfd_write(wake_.value(), 1)); }

  // What the submitter does.

  void work() noexcept {
    expect_wake();
    core::Backoff backoff;
    for (submit_waiting(); !is_done(); submit_waiting()) {
      // A refusal, for want of memory, passes or ends in a time-out of the load: what is in flight
      // cannot be given up, since the kernel may still write to its memory.
      if (!ring_.submit_and_wait()) backoff.pause();
      ring_.complete([this](void* data, int result) { complete(data, result); });
    }
  }

  bool is_done() {
    const std::scoped_lock lock(mutex_);
    return stopping_ && waiting_.empty() && in_flight_ == 0;
  }

  void submit_waiting() {
    while (const auto flight = take_waiting()) submit(flight);
  }

  // Null if none may be submitted.
  std::shared_ptr<Flight> take_waiting() {
    const std::scoped_lock lock(mutex_);
    if (waiting_.empty() || in_flight_ == depth_) return nullptr;
    auto flight = std::move(waiting_.front());
    waiting_.pop_front();
    return flight;
  }

  void submit(const std::shared_ptr<Flight>& flight) noexcept {
    const RangeRead::Call& call = flight->call;
    const auto bytes = static_cast<unsigned>(std::min(call.to.size(), most_bytes));
    io_uring_sqe* const entry = ring_.entry();
    ::io_uring_prep_read(entry, call.handle->descriptor(), call.to.data(), bytes, call.offset);
    ::io_uring_sqe_set_data(entry, flight.get());
    flight->in_kernel = flight;
    ++in_flight_;
    ring_used_ = true;
  }

  void complete(void* data, int result) {
    if (data == nullptr) return expect_wake();
    const auto flight = std::exchange(static_cast<Flight*>(data)->in_kernel, nullptr);
    --in_flight_;
    if (!goes_on(*flight, [&] { flight->done(result); })) return;
    if (flight->is_for_ring()) return submit(flight);
    pool_->submit([this, flight] { read(flight); });
  }

  void expect_wake() noexcept {
    io_uring_sqe* const entry = ring_.entry();
    ::io_uring_prep_read(entry, wake_.value(), &wakes_, sizeof wakes_, 0);
    ::io_uring_sqe_set_data(entry, nullptr);
  }

  const std::size_t depth_;
  const unsigned threads_;
  std::size_t in_flight_ = 0;  // used by the submitter only
  std::uint64_t wakes_ = 0;    // what the kernel reads from `wake_`
  Ring ring_;                  // used by the submitter only
  const core::Descriptor wake_;
  std::atomic<bool> ring_used_{false};
  std::atomic<bool> pool_used_{false};
  std::mutex mutex_;  // guards the next four
  Flights unbegun_;
  std::size_t begun_ = 0;  // and not ended
  Flights waiting_;        // for the ring
  bool stopping_ = false;
  std::optional<core::ThreadPool> pool_;
  std::thread submitter_;  // last: it uses the rest
};

}  // namespace

std::unique_ptr<Engine> make_uring_engine(std::size_t depth, unsigned threads) {
  return std::make_unique<UringEngine>(depth, threads);
}

}  // namespace safeshuffle::io
