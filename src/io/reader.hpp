// Reading file ranges into device memory: batches of ranges, polled for completion.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/metadata.hpp"
#include "safeshuffle/options.hpp"

#include "core/deadline.hpp"
#include "device/device.hpp"
#include "source/source.hpp"

namespace safeshuffle::io {

/// One contiguous range of a file. `destination` is device memory. Without a ring of pinned memory,
/// and with GPUDirect Storage, direct reads need destination ≡ offset (mod core::page_bytes).
struct ReadRange {
  std::uint32_t file = 0;  ///< index into the files the reader was made with
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::byte* destination = nullptr;
  bool may_leave = false;  ///< what the page cache has need not be read, see LeftRange
  /// The rest of the first and the last page of the destination may be overwritten, so that one
  /// direct read reads a range that begins or ends within a page.
  bool whole_pages = false;
};

class File;
class Files;

/// A range that was left where it is, because the page cache has it: a copy to its destination, to
/// be copied from there again, would only cost time. Must not outlive the reader.
struct LeftRange {
  Files* files = nullptr;
  std::uint32_t file = 0;  ///< index into the files the reader was made with
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::byte* destination = nullptr;  ///< where it would have been read to
  std::shared_ptr<File> kept_open;   ///< null: the file is opened again to read from it
  std::string_view choice = {};      ///< as in PathRecorder::Range
};

/// Fills `to` with the bytes of the range from `skip` on. Thread-safe. Throws IoError.
void read(const LeftRange& range, std::uint64_t skip, std::span<std::byte> to);

/// So many of its bytes were not read: IoPath counts all of a range until it is told.
void note_unread(const LeftRange& range, std::uint64_t bytes);

/// Throws IoError if its file is no longer the one described: to be called after its last `read`.
void check_unchanged(const LeftRange& range, const source::Source& source);

/// Identifies a submitted batch; counts up from 0.
using BatchId = std::uint64_t;

/// From the beginning of the first of some reads or copies to the end of the last.
struct Activity {
  core::Clock::time_point begin;
  core::Clock::time_point end;
};

/// The progress of a batch.
struct BatchStatus {
  bool done = false;  ///< nothing of the batch is in progress: all data landed, or it failed
  bool read = false;  ///< all reads are complete; some data may still be on its way to the device
  std::uint64_t bytes = 0;           ///< landed so far
  std::optional<ErrorRecord> error;  ///< the first failure: file, offset, errno, cause
  std::vector<LeftRange> left;       ///< ascending destination; told once, when done
  std::optional<Activity> reads;     ///< into memory; told when done
  std::optional<Activity> copies;    ///< onto the device; told when done
};

/// Bytes by how they were read (true: bypassing the page cache) and why.
using IoChoices = std::map<std::pair<bool, std::string>, std::uint64_t>;

/// How a reader actually read, for the report.
struct IoPath {
  std::string engine;                ///< "posix", "uring", "uring+posix", "gds", "gds+posix"
  unsigned threads = 0;              ///< that read
  std::string mode;                  ///< "buffered", "direct", "mixed"; empty if nothing was read
  std::uint64_t direct_bytes = 0;    ///< read bypassing the page cache
  std::uint64_t buffered_bytes = 0;  ///< read through the page cache
  std::uint64_t device_bytes = 0;    ///< of the direct ones, read straight into device memory
  IoChoices choices;                 ///< of automatic mode; empty if the caller chose
  /// Files that should be read directly, or straight into device memory, but were not entirely.
  std::uint64_t fallback_files = 0;
  std::vector<std::string> fallbacks;  ///< one line per reason, with the first of these files
};

/// Reads batches in order of submission. Used by one thread. The destructor waits for reads in
/// progress and drops the rest.
class Reader {
 public:
  virtual ~Reader() = default;

  /// Starts reading all ranges; returns at once. Files are opened on first use. A failed range does
  /// not stop the others: the bytes of a failed range are unspecified.
  /// What is left counts as landed; the caller checks its files after its last use.
  virtual BatchId submit(std::span<const ReadRange> ranges) = 0;

  /// Waits up to `patience` for the batch to be done. A failure is reported, not thrown.
  virtual BatchStatus poll(BatchId batch, std::chrono::microseconds patience) = 0;

  /// Drops all reads, also those that are submitted later, that no thread has begun; they count as
  /// failed. Reads in progress continue: `poll` tells when they have ended.
  virtual void cancel() noexcept = 0;

  /// As if it had just been made, with these files. No batch may be in progress.
  virtual void start_over(std::vector<FileInfo> files) noexcept = 0;

  /// Total time during which at least one read was in progress, in seconds.
  virtual double busy_seconds() const = 0;

  /// The path taken so far.
  virtual IoPath path() const = 0;
};

struct ReaderOptions {
  IoEngine engine = IoEngine::automatic;
  DirectIo direct = DirectIo::automatic;
  unsigned threads = 1;
  std::uint64_t chunk = std::uint64_t{1} << 20;  ///< bytes per read call

  /// Whether pieces are cut at multiples of the chunk; otherwise they are as short as all threads
  /// need them to be.
  bool whole_chunks = false;

  /// Whether the system may read ahead of buffered reads. What it is still reading stays in the
  /// page cache when all else is dropped.
  bool read_ahead = true;
};

/// A reader of `files` (copied) in `source` that lands data through `staging`; both must outlive
/// it. Before and after a file is read, it is checked to be the one whose header was read (size,
/// modification time, and the inode if it is known); a file that changed, shrank or ended early is
/// always an error. `memory`: device memory of most destinations, which must outlive the reader; it
/// is prepared for reads without staging, if the engine makes such.
std::unique_ptr<Reader> make_reader(const ReaderOptions& options, const source::Source& source,
                                    std::vector<FileInfo> files, device::Staging& staging,
                                    std::span<const std::span<std::byte>> memory = {});

}  // namespace safeshuffle::io
