#include "io/uring_engine.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <functional>
#include <liburing.h>
#include <mutex>
#include <optional>
#include <span>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

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

  /// Makes room for so many buffers. Returns false if the kernel refused.
  bool expect_buffers(std::size_t count) noexcept {
    return ::io_uring_register_buffers_sparse(&ring_, static_cast<unsigned>(count)) == 0;
  }

  /// Returns false if the kernel refused.
  bool register_buffer(std::size_t index, std::span<std::byte> memory) noexcept {
    const iovec buffer{memory.data(), memory.size()};
    return ::io_uring_register_buffers_update_tag(&ring_, static_cast<unsigned>(index), &buffer,
                                                  nullptr, 1) == 1;
  }

  /// At once, where the end of the ring would give back the locked memory some time later.
  void unregister_buffers() noexcept { static_cast<void>(::io_uring_unregister_buffers(&ring_)); }

  /// Makes room for so many files. Returns false if the kernel refused.
  bool expect_files(std::size_t count) noexcept {
    return ::io_uring_register_files_sparse(&ring_, static_cast<unsigned>(count)) == 0;
  }

  /// In place of the one that had this index, which reads in flight still use. Returns false if the
  /// kernel refused.
  bool register_file(std::size_t index, int descriptor) noexcept {
    return ::io_uring_register_files_update(&ring_, static_cast<unsigned>(index), &descriptor, 1) ==
           1;
  }

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

/// Memory that is registered with a ring: the kernel keeps its pages pinned, and need not find and
/// pin those of each read. Each span is registered before the first read into it, because that
/// provides all of its pages. If the kernel refuses, for its age or the limit on locked memory,
/// nothing more is registered.
class FixedBuffers {
 public:
  FixedBuffers(Ring& ring, std::span<const std::span<std::byte>> memory)
      : ring_(ring), memory_(memory.begin(), memory.end()), is_registered_(memory.size()) {}

  ~FixedBuffers() {
    if (has_room_) ring_.unregister_buffers();
  }
  FixedBuffers(const FixedBuffers&) = delete;
  FixedBuffers& operator=(const FixedBuffers&) = delete;

  /// Of the buffer that `to` lies in; none if it is not registered.
  std::optional<int> index_of(std::span<const std::byte> to) noexcept {
    const auto found = std::ranges::find_if(
        memory_, [to](std::span<const std::byte> span) { return contains(span, to); });
    if (found == memory_.end()) return {};
    const auto index = static_cast<std::size_t>(found - memory_.begin());
    if (!is_registered_[index] && !refused_) register_span(index);
    return is_registered_[index] ? std::optional(static_cast<int>(index)) : std::nullopt;
  }

 private:
  static bool contains(std::span<const std::byte> span, std::span<const std::byte> part) noexcept {
    return std::less_equal<>()(span.data(), part.data()) &&
           std::less_equal<>()(part.data() + part.size(), span.data() + span.size());
  }

  void register_span(std::size_t index) noexcept {
    if (!has_room_) has_room_ = ring_.expect_buffers(memory_.size());
    is_registered_[index] = has_room_ && ring_.register_buffer(index, memory_[index]);
    refused_ = !is_registered_[index];
  }

  Ring& ring_;
  const std::vector<std::span<std::byte>> memory_;
  std::vector<bool> is_registered_;
  bool has_room_ = false;
  bool refused_ = false;
};

/// Files that are registered with a ring: the kernel need not look up the descriptor for each read.
/// It keeps them open itself, until another takes the place of one that is not used any more.
class FixedFiles {
 public:
  explicit FixedFiles(Ring& ring) : files_(ring.expect_files(most) ? most : 0), ring_(ring) {}

  /// Of the file, whose descriptor for direct reads this is; none if it is not registered.
  std::optional<int> index_of(const std::shared_ptr<const File>& file, int descriptor) noexcept {
    auto found = std::ranges::find(files_, file, &std::weak_ptr<const File>::lock);
    if (found == files_.end()) {
      found = std::ranges::find_if(files_, &std::weak_ptr<const File>::expired);
      if (found == files_.end()) return {};
      if (!ring_.register_file(index(found), descriptor)) return {};
      *found = file;
    }
    return static_cast<int>(index(found));
  }

 private:
  using Files = std::vector<std::weak_ptr<const File>>;

  static constexpr std::size_t most = 64;

  std::size_t index(Files::iterator file) noexcept {
    return static_cast<std::size_t>(file - files_.begin());
  }

  Files files_;  // by index
  Ring& ring_;
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
    if (result >= 0) return reading->done_by_uring(static_cast<std::size_t>(result));
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
  UringEngine(std::size_t depth, unsigned threads, std::span<const std::span<std::byte>> memory)
      : depth_(depth),
        threads_(threads),
        ring_(static_cast<unsigned>(depth + 1)),  // one for `expect_wake`
        buffers_(ring_, memory),
        files_(ring_),
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
    const int descriptor = call.handle->descriptor();
    const std::optional<int> file = files_.index_of(flight->reading->file(), descriptor);
    const auto bytes = static_cast<unsigned>(std::min(call.to.size(), most_bytes));
    const std::optional<int> buffer = buffers_.index_of(call.to);
    io_uring_sqe* const entry = ring_.entry();
    if (buffer) {
      ::io_uring_prep_read_fixed(entry, file.value_or(descriptor), call.to.data(), bytes,
                                 call.offset, *buffer);
    } else {
      ::io_uring_prep_read(entry, file.value_or(descriptor), call.to.data(), bytes, call.offset);
    }
    if (file) ::io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
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
  FixedBuffers buffers_;       // used by the submitter only
  FixedFiles files_;           // used by the submitter only
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

std::unique_ptr<Engine> make_uring_engine(std::size_t depth, unsigned threads,
                                          std::span<const std::span<std::byte>> memory) {
  return std::make_unique<UringEngine>(depth, threads, memory);
}

}  // namespace safeshuffle::io
