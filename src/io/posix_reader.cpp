#include "io/posix_reader.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "core/defaults.hpp"
#include "core/error_wire.hpp"
#include "core/thread_pool.hpp"
#include "io/busy_clock.hpp"
#include "io/files.hpp"
#include "io/pieces.hpp"

namespace safeshuffle::io {
namespace {

struct Batch {
  std::vector<std::uint32_t> files;  // each once
  std::size_t unread = 0;            // pieces that no thread has tried to read yet
  std::size_t unfinished = 0;        // pieces that have neither landed nor failed
  std::uint64_t bytes = 0;           // landed
  std::size_t error_position = 0;    // of the piece that failed
  std::optional<ErrorRecord> error;
};

std::vector<std::uint32_t> files_of(const std::vector<Piece>& pieces) {
  std::vector<std::uint32_t> files;
  for (const Piece& piece : pieces) {
    if (files.empty() || files.back() != piece.file) files.push_back(piece.file);
  }
  return files;
}

class PosixReader final : public Reader {
 public:
  PosixReader(const ReaderOptions& options, const source::Source& source,
              std::vector<FileInfo> files, device::Staging& staging)
      : options_(options),
        source_(source),
        staging_(staging),
        files_(std::move(files), options.direct == DirectIo::on, source, recorder_),
        pool_(std::make_unique<core::ThreadPool>(options.threads)) {}

  ~PosixReader() override {
    pool_.reset();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return in_transfer_ == 0; });
  }

  BatchId submit(std::span<const ReadRange> ranges) override {
    for (const ReadRange& range : ranges) files_.info(range.file);  // throws on a wrong index
    const std::vector<Piece> pieces = split(ranges, options_.chunk, options_.threads);
    Batch& batch = add_batch(pieces);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      pool_->submit([this, &batch, piece = pieces[i], i] { process(batch, piece, i); });
    }
    return batches_.size() - 1;
  }

  BatchStatus poll(BatchId id, std::chrono::microseconds patience) override {
    std::unique_lock lock(mutex_);
    const Batch& batch = batches_.at(id);
    const auto done = [&batch] { return batch.unfinished == 0; };
    const bool is_done = changed_.wait_for(lock, patience, done);
    return {is_done, batch.unread == 0, batch.bytes, batch.error};
  }

  void cancel() noexcept override { cancelled_ = true; }

  double busy_seconds() const override { return busy_.seconds(); }

  IoPath path() const override { return recorder_.path("posix"); }

 private:
  Batch& add_batch(const std::vector<Piece>& pieces) {
    Batch batch{.files = files_of(pieces), .error = {}};
    batch.unread = batch.unfinished = pieces.size();
    const std::scoped_lock lock(mutex_);
    return batches_.emplace_back(std::move(batch));
  }

  /// One piece from file to device, on a worker thread.
  void process(Batch& batch, const Piece& piece, std::size_t position) {
    std::optional<device::StagingSlot> slot;
    bool filled = attempt(batch, piece, position, [&] {
      if (cancelled_) throw IoError("the read was cancelled");
      slot = staging_.acquire(piece.destination, piece.bytes);
      read(piece, slot->host);
    });
    if (last_read(batch) && !cancelled_) check_files(batch);
    if (filled) {
      filled = attempt(batch, piece, position, [&] { commit(batch, *slot); });
    } else if (slot) {
      staging_.discard(*slot);
    }
    if (!filled) finish(batch, 0);
  }

  void read(const Piece& piece, std::span<std::byte> to) {
    const BusyClock::Work work(busy_);
    files_.open(piece.file)->read(piece.offset, to);
  }

  void commit(Batch& batch, const device::StagingSlot& slot) {
    begin_transfer();
    try {
      staging_.commit(slot, [this, &batch, bytes = slot.host.size()] {
        finish(batch, bytes);
        end_transfer();
      });
    } catch (...) {
      end_transfer();
      throw;
    }
  }

  bool last_read(Batch& batch) {
    const std::scoped_lock lock(mutex_);
    return --batch.unread == 0;
  }

  /// After the last read, because data read before a change cannot be trusted either.
  void check_files(Batch& batch) {
    for (const std::uint32_t file : batch.files) {
      attempt(batch, {.file = file}, after_pieces,
              [&] { check_unchanged(files_.info(file), source_); });
    }
  }

  /// Runs a step; returns whether it succeeded. A failure is recorded in the batch.
  template <typename Step>
  bool attempt(Batch& batch, const Piece& piece, std::size_t position, const Step& step) {
    try {
      step();
      return true;
    } catch (...) {
      ErrorRecord record = core::current_error();
      if (record.file.empty()) record.file = files_.info(piece.file).path;
      fail(batch, position, record);
    }
    return false;
  }

  void fail(Batch& batch, std::size_t position, const ErrorRecord& record) {
    const std::scoped_lock lock(mutex_);
    if (batch.error && batch.error_position <= position) return;
    batch.error = record;
    batch.error_position = position;
  }

  void finish(Batch& batch, std::uint64_t bytes) {
    const std::scoped_lock lock(mutex_);
    batch.bytes += bytes;
    if (--batch.unfinished == 0) changed_.notify_all();
  }

  void begin_transfer() {
    const std::scoped_lock lock(mutex_);
    ++in_transfer_;
  }

  /// Notifies under the lock, so that a destructor that waits for this cannot continue too early.
  void end_transfer() {
    const std::scoped_lock lock(mutex_);
    if (--in_transfer_ == 0) changed_.notify_all();
  }

  static constexpr std::size_t after_pieces = ~std::size_t{0};

  const ReaderOptions options_;
  const source::Source& source_;
  device::Staging& staging_;
  PathRecorder recorder_;
  BusyClock busy_;
  Files files_;
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;  // guards what follows, contents of batches included
  std::condition_variable changed_;
  std::deque<Batch> batches_;  // by id; never shrinks, so that references stay valid
  std::size_t in_transfer_ = 0;
  std::unique_ptr<core::ThreadPool> pool_;  // last: its tasks use the rest
};

}  // namespace

std::unique_ptr<Reader> make_posix_reader(const ReaderOptions& options,
                                          const source::Source& source, std::vector<FileInfo> files,
                                          device::Staging& staging) {
  if (options.threads == 0) throw ConfigError("a reader needs at least one thread");
  if (options.chunk < core::smallest_chunk) {
    throw ConfigError("a chunk must be at least " + std::to_string(core::smallest_chunk) +
                      " bytes, not " + std::to_string(options.chunk));
  }
  return std::make_unique<PosixReader>(options, source, std::move(files), staging);
}

}  // namespace safeshuffle::io
