// Batches, slots and errors, whatever engine moves the bytes.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "core/defaults.hpp"
#include "core/error_wire.hpp"
#include "core/page.hpp"
#include "io/busy_clock.hpp"
#include "io/engine.hpp"
#include "io/files.hpp"
#include "io/pieces.hpp"
#include "io/policy.hpp"
#include "io/reader.hpp"
#include "io/uring_engine.hpp"

namespace safeshuffle::io {
namespace {

struct Batch {
  std::vector<std::uint32_t> files;  // each once
  std::size_t unread = 0;            // pieces that no thread has tried to read yet
  std::size_t unfinished = 0;        // pieces that have neither landed nor failed
  std::uint64_t bytes = 0;           // landed
  std::size_t error_position = 0;    // of the piece that failed
  std::optional<ErrorRecord> error;
  std::vector<LeftRange> left;  // until polled
  std::optional<Activity> reads;
  std::optional<Activity> copies;
};

void add(const Activity& part, std::optional<Activity>& all) noexcept {
  if (!all) all = part;
  all = {std::min(all->begin, part.begin), std::max(all->end, part.end)};
}

std::vector<std::uint32_t> files_of(const std::vector<Piece>& pieces) {
  std::vector<std::uint32_t> files;
  for (const Piece& piece : pieces) {
    if (files.empty() || files.back() != piece.file) files.push_back(piece.file);
  }
  return files;
}

std::unique_ptr<Engine> make_engine(const ReaderOptions& options, PathRecorder& recorder) {
  switch (options.engine) {
    case IoEngine::uring:
      try {
        return make_uring_engine(std::min(reads_in_flight(options.chunk), files_in_flight()),
                                 options.threads);
      } catch (const IoError& error) {
        recorder.engine_fallback("uring fell back to posix: " + error.record().cause);
      }
      [[fallthrough]];
    case IoEngine::automatic:
    case IoEngine::posix:
    case IoEngine::gds:
      return make_posix_engine(options.threads);
  }
  throw ConfigError("unknown I/O engine");
}

/// What reads without staging, if that was asked for and can be done.
std::unique_ptr<device::DeviceReads> make_device_reads(const ReaderOptions& options,
                                                       device::Staging& staging,
                                                       std::span<const std::span<std::byte>> memory,
                                                       PathRecorder& recorder) {
  if (options.engine != IoEngine::gds) return nullptr;
  try {
    auto reads = staging.make_device_reads(memory);
    if (!reads->detour().empty()) recorder.engine_fallback("gds reads " + reads->detour());
    return reads;
  } catch (const IoError& error) {
    recorder.engine_fallback("gds fell back to posix: " + error.record().cause);
    return nullptr;
  }
}

class BatchReader final : public Reader {
 public:
  BatchReader(const ReaderOptions& options, const source::Source& source,
              std::vector<FileInfo> files, device::Staging& staging,
              std::span<const std::span<std::byte>> memory)
      : options_(options),
        source_(source),
        staging_(staging),
        device_reads_(make_device_reads(options, staging, memory, recorder_)),
        files_(std::move(files), options, source, recorder_, device_reads_.get()),
        engine_(make_engine(options, recorder_)) {
    source_.interrupt(false);
  }

  ~BatchReader() override {
    cancel();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return in_progress_ == 0; });
    source_.interrupt(false);
  }

  BatchId submit(std::span<const ReadRange> ranges) override {
    for (const ReadRange& range : ranges) files_.info(range.file);  // throws on a wrong index
    add_batch(options_.whole_chunks ? split_at_chunks(ranges, options_.chunk)
                                    : split_for(options_.threads, ranges, options_.chunk));
    hand_out();
    return batches_.size() - 1;
  }

  BatchStatus poll(BatchId id, std::chrono::microseconds patience) override {
    std::unique_lock lock(mutex_);
    Batch& batch = batches_.at(id);
    const auto done = [&batch] { return batch.unfinished == 0; };
    const bool is_done = changed_.wait_for(lock, patience, done);
    BatchStatus status{is_done, batch.unread == 0, batch.bytes, batch.error, {}, {}, {}};
    if (is_done) {
      status.left = sorted(std::exchange(batch.left, {}));
      status.reads = batch.reads;
      status.copies = batch.copies;
    }
    return status;
  }

  void cancel() noexcept override {
    cancelled_ = true;
    source_.interrupt(true);
    hand_out();  // fails what waits for a slot
  }

  void start_over(std::vector<FileInfo> files) noexcept override {
    files_.start_over(std::move(files));
    source_.interrupt(false);
    const std::scoped_lock lock(mutex_);
    cancelled_ = false;
    batches_.clear();
    busy_.start_over();
    recorder_.start_over();
  }

  double busy_seconds() const override { return busy_.seconds(); }

  IoPath path() const override {
    IoPath path = recorder_.path(engine_->name());
    path.threads = engine_->threads();
    return path;
  }

 private:
  /// A piece of a batch, and its position there.
  struct Task {
    Batch& batch;
    Piece piece;
    std::size_t position = 0;
  };

  static std::vector<LeftRange> sorted(std::vector<LeftRange> ranges) {
    std::ranges::sort(ranges, {}, &LeftRange::destination);
    return ranges;
  }

  void add_batch(const std::vector<Piece>& pieces) {
    Batch batch{.files = files_of(pieces), .error = {}, .left = {}, .reads = {}, .copies = {}};
    batch.unread = batch.unfinished = pieces.size();
    const auto leavable = std::ranges::count_if(pieces, &Piece::may_leave);
    batch.left.reserve(static_cast<std::size_t>(leavable));  // `note_left` must not throw
    const std::scoped_lock lock(waiting_mutex_, mutex_);
    Batch& added = batches_.emplace_back(std::move(batch));
    for (std::size_t i = 0; i < pieces.size(); ++i) waiting_.push_back({added, pieces[i], i});
  }

  /// Hands pieces to the engine, in order, as long as there are slots for them: no thread ever
  /// waits for a slot. To be called whenever one may have become free.
  void hand_out() {
    const std::scoped_lock lock(waiting_mutex_);
    while (!waiting_.empty() && hand_out(waiting_.front())) waiting_.pop_front();
  }

  /// Returns whether the piece no longer waits: it has a slot, or it failed.
  bool hand_out(const Task& task) {
    bool has_slot = true;
    const bool succeeded = attempt(task, [&] {
      require_not_cancelled();
      auto slot = staging_.try_acquire(task.piece.destination, task.piece.bytes,
                                       task.piece.offset % core::page_bytes);
      has_slot = slot.has_value();
      if (!slot) return;
      if (slot->host.data() == task.piece.destination) slot->whole_pages = task.piece.whole_pages;
      start(task, *slot);
    });
    if (!succeeded) drop(task.batch);
    return has_slot;
  }

  void start(const Task& task, const device::StagingSlot& slot) {
    count_in_progress(1);
    try {
      engine_->start(std::make_unique<PieceJob>(*this, task, slot));
    } catch (...) {
      staging_.discard(slot);
      count_in_progress(-1);
      throw;
    }
  }

  void require_not_cancelled() const {
    if (cancelled_) throw IoError("the read was cancelled");
  }

  /// One piece from file to slot.
  class PieceJob final : public Job {
   public:
    PieceJob(BatchReader& reader, const Task& task, const device::StagingSlot& slot)
        : reader_(reader), task_(task), slot_(slot) {}

    RangeRead& begin() override {
      reader_.require_not_cancelled();
      begun_ = core::Clock::now();
      busy_.emplace(reader_.busy_);
      return reading_.emplace(reader_.files_.open(task_.piece.file), task_.piece.offset, slot_,
                              task_.piece.may_leave);
    }

    void end(std::exception_ptr error) noexcept override {
      if (!error) {
        note_read();
        slot_.on_device = reading_->on_device();
      }
      reading_.reset();
      busy_.reset();
      reader_.land(task_, slot_, error);
    }

   private:
    void note_read() noexcept {
      if (auto file = reading_->left_in()) {
        reader_.note_left(task_, std::move(file), reading_->choice());
      } else {
        reader_.note({begun_, core::Clock::now()}, task_.batch.reads);
      }
    }

    BatchReader& reader_;
    const Task task_;
    device::StagingSlot slot_;
    core::Clock::time_point begun_;
    std::optional<BusyClock::Work> busy_;
    std::optional<RangeRead> reading_;
  };

  /// Of what is left, only the first files of a batch stay open, as many as are kept open anyway.
  /// Files of a batch ascend.
  bool keeps_open(const Task& task) const {
    const std::vector<std::uint32_t>& files = task.batch.files;
    return task.piece.file <= files[std::min(files.size(), files_.capacity()) - 1];
  }

  void note_left(const Task& task, std::shared_ptr<File> file, std::string_view choice) noexcept {
    if (!keeps_open(task)) file.reset();
    const Piece& piece = task.piece;
    const std::scoped_lock lock(mutex_);
    task.batch.left.push_back({&files_, piece.file, piece.offset, piece.bytes, piece.destination,
                               std::move(file), choice});
  }

  /// One piece from slot to device, unless it could not be read.
  void land(const Task& task, const device::StagingSlot& slot, const std::exception_ptr& error) {
    const bool filled = attempt(task, [&] {
      if (error) std::rethrow_exception(error);
    });
    if (ends_reading(task.batch)) check_files(task.batch);
    if (!filled) staging_.discard(slot);
    if (!filled || !attempt(task, [&] { commit(task.batch, slot); })) end(task.batch, 0);
  }

  void commit(Batch& batch, const device::StagingSlot& slot) {
    const bool copies = staging_.pinned_bytes() != 0 && !slot.is_on_device();
    staging_.commit(slot,
                    [this, &batch, bytes = slot.host.size(), copies, begun = core::Clock::now()] {
                      if (copies) note({begun, core::Clock::now()}, batch.copies);
                      end(batch, bytes);
                    });
  }

  void note(const Activity& part, std::optional<Activity>& all) noexcept {
    const std::scoped_lock lock(mutex_);
    add(part, all);
  }

  /// Counts a piece as read; returns whether all were read, without an error.
  bool ends_reading(Batch& batch) {
    const std::scoped_lock lock(mutex_);
    return --batch.unread == 0 && !batch.error;
  }

  /// After the last read, because data read before a change cannot be trusted either; so not yet
  /// where something was left. Nothing else uses what was left now.
  void check_files(Batch& batch) {
    std::ranges::sort(batch.left, {}, &LeftRange::file);
    for (const std::uint32_t file : batch.files) {
      if (std::ranges::binary_search(batch.left, file, {}, &LeftRange::file)) continue;
      attempt({batch, {.file = file}, after_pieces},
              [&] { check_unchanged(files_.info(file), source_); });
    }
  }

  /// Runs a step; returns whether it succeeded. A failure is recorded in the batch.
  template <typename Step>
  bool attempt(const Task& task, const Step& step) {
    try {
      step();
      return true;
    } catch (...) {
      ErrorRecord record = core::current_error();
      if (record.file.empty()) record.file = files_.info(task.piece.file).path;
      fail(task, record);
    }
    return false;
  }

  void fail(const Task& task, const ErrorRecord& record) {
    const std::scoped_lock lock(mutex_);
    Batch& batch = task.batch;
    if (batch.error && batch.error_position <= task.position) return;
    batch.error = record;
    batch.error_position = task.position;
  }

  /// Counts a piece that never got a slot as failed.
  void drop(Batch& batch) {
    static_cast<void>(ends_reading(batch));
    finish(batch, 0);
  }

  /// Counts a piece that had a slot, which is free again, as landed or failed.
  void end(Batch& batch, std::uint64_t bytes) {
    hand_out();
    finish(batch, bytes);
    count_in_progress(-1);
  }

  /// Notifies under the lock, so that a destructor that waits for this cannot continue too early.
  void count_in_progress(int change) {
    const std::scoped_lock lock(mutex_);
    in_progress_ += static_cast<std::size_t>(change);
    if (in_progress_ == 0) changed_.notify_all();
  }

  void finish(Batch& batch, std::uint64_t bytes) {
    const std::scoped_lock lock(mutex_);
    batch.bytes += bytes;
    if (--batch.unfinished == 0) changed_.notify_all();
  }

  static constexpr std::size_t after_pieces = ~std::size_t{0};

  const ReaderOptions options_;
  const source::Source& source_;
  device::Staging& staging_;
  PathRecorder recorder_;
  const std::unique_ptr<device::DeviceReads> device_reads_;  // null: all is read into slots
  BusyClock busy_;
  Files files_;
  std::atomic<bool> cancelled_{false};
  std::mutex waiting_mutex_;  // guards the next member; locked before `mutex_`
  std::deque<Task> waiting_;  // for a slot
  std::mutex mutex_;          // guards what follows, contents of batches included
  std::condition_variable changed_;
  std::deque<Batch> batches_;             // by id; those in progress stay where they are
  std::size_t in_progress_ = 0;           // pieces that have a slot
  const std::unique_ptr<Engine> engine_;  // last: its jobs use the rest
};

}  // namespace

void read(const LeftRange& range, std::uint64_t skip, std::span<std::byte> to) {
  const auto opened = range.kept_open ? nullptr : range.files->open(range.file);
  const File& file = opened ? *opened : *range.kept_open;
  source::read(file.buffered(), file.info().path, range.offset + skip, to);
}

void note_unread(const LeftRange& range, std::uint64_t bytes) {
  range.files->recorder().unread(bytes, range.choice);
}

void check_unchanged(const LeftRange& range, const source::Source& source) {
  check_unchanged(range.files->info(range.file), source);
}

std::unique_ptr<Reader> make_reader(const ReaderOptions& options, const source::Source& source,
                                    std::vector<FileInfo> files, device::Staging& staging,
                                    std::span<const std::span<std::byte>> memory) {
  if (options.threads == 0) throw ConfigError("a reader needs at least one thread");
  if (options.chunk < core::smallest_chunk) {
    throw ConfigError("a chunk must be at least " + std::to_string(core::smallest_chunk) +
                      " bytes, not " + std::to_string(options.chunk));
  }
  return std::make_unique<BatchReader>(options, source, std::move(files), staging, memory);
}

}  // namespace safeshuffle::io
