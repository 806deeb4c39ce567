#include <algorithm>
#include <optional>
#include <utility>

#include "core/arithmetic.hpp"
#include "core/deadline.hpp"
#include "core/detached_work.hpp"
#include "core/page.hpp"
#include "core/text.hpp"
#include "device/host/memory.hpp"
#include "io/policy.hpp"
#include "probe/trials.hpp"

namespace safeshuffle::probing {
namespace {

using Of = Measurement::Of;

constexpr std::chrono::microseconds poll_patience{1000};

constexpr std::size_t most_pages = 8;

/// The ranges of the sample, cut into pieces of at most a window.
std::vector<SampleRange> cut_into_windows(const std::vector<SampleRange>& ranges,
                                          std::uint64_t window) {
  std::vector<SampleRange> pieces;
  for (const SampleRange& range : ranges) {
    for (std::uint64_t done = 0; done < range.bytes; done += window) {
      pieces.push_back({range.file, range.offset + done, std::min(window, range.bytes - done)});
    }
  }
  return pieces;
}

/// A reader and what its threads use: left to them if one hangs in the kernel, because it cannot be
/// joined.
struct Reading {
  std::optional<core::DetachedWork> threads;  // set when it is abandoned
  std::shared_ptr<const source::Source> source;
  std::shared_ptr<device::Device> device;
  std::shared_ptr<ProbeSlabs> slabs;
  std::shared_ptr<std::byte> new_memory;  // if it reads to there
  std::unique_ptr<device::Staging> staging;
  std::unique_ptr<io::Reader> reader;
};

/// Where a run reads to: into slabs in turn, or as loads on the host read what the page cache
/// has, into memory for all of it that was just allocated.
enum class Into { slabs, new_memory };

/// What it reads: all of the sample, several windows at a time, or pages, one after another.
enum class What { windows, pages };

std::vector<SampleRange> pieces_of(const ProbeRig& rig, What what) {
  std::vector<SampleRange> pieces = cut_into_windows(rig.sample.ranges(), rig.window);
  if (what == What::windows) return pieces;
  pieces.resize(std::min(pieces.size(), most_pages));
  for (SampleRange& piece : pieces) piece.bytes = std::min(piece.bytes, core::page_bytes);
  return pieces;
}

enum class Cache { cold, warm };

/// As a load has them. On the host, those of its threads that pack read what the page cache has.
io::ReaderOptions reader_options(const ProbeRig& rig, Cache cache, bool direct) {
  io::ReaderOptions options = rig.reader;
  options.direct = direct ? DirectIo::on : DirectIo::off;
  const bool packing_threads_read = cache == Cache::warm && rig.comm.device() == DeviceKind::host;
  if (packing_threads_read) options.threads = packing_threads();
  return options;
}

std::unique_ptr<Reading> make_reading(const ProbeRig& rig, const io::ReaderOptions& options) {
  auto reading = std::make_unique<Reading>();
  reading->source = rig.source;
  reading->device = rig.comm.device_handle();
  reading->slabs = rig.slabs;
  core::run_on(rig.reader_cpus, [&] {
    const std::uint64_t slot_bytes = std::min(options.chunk, rig.slabs->bytes);
    reading->staging =
        reading->device->make_staging(slot_bytes, io::ring_slots(options, slot_bytes));
    reading->reader = io::make_reader(options, *rig.source, rig.files, *reading->staging);
  });
  return reading;
}

/// One run of reading: like a load, it reads the next windows while it is done with one; pages one
/// after another.
class ReadRun {
 public:
  ReadRun(ProbeRig& rig, const io::ReaderOptions& options, Into into, What what)
      : rig_(rig),
        reading_(make_reading(rig, options)),
        pieces_(pieces_of(rig, what)),
        at_a_time_(what == What::pages ? 1 : slabs) {
    into == Into::slabs ? use_slabs() : use_new_memory();
  }

  /// Reads until the end of the sample, or the time of a run is over; once.
  Run read() {
    Run run;
    const auto may_begin = [&] { return core::Clock::now() - run.begin < rig_.most; };
    run.measure([&] {
      std::size_t begun = 0;
      for (std::size_t done = 0;; ++done) {
        while (begun < pieces_.size() && begun < done + at_a_time_ && (begun == 0 || may_begin())) {
          submit(begun++);
        }
        if (done == begun) break;
        await(done);
        run.bytes += pieces_[done].bytes;
        run.times = static_cast<std::uint32_t>(done + 1);
      }
    });
    return run;
  }

  io::IoPath path() const { return reading_->reader->path(); }

 private:
  static constexpr std::size_t slabs = std::tuple_size_v<decltype(ProbeSlabs::memory)>;

  void use_slabs() {
    for (std::size_t index = 0; index < pieces_.size(); ++index) {
      destinations_.push_back(rig_.slabs->memory[index % slabs].get());
    }
  }

  void use_new_memory() {
    std::vector<std::uint64_t> ends{0};
    for (const SampleRange& piece : pieces_) {
      ends.push_back(ends.back() + core::align_up(piece.bytes, device::huge_page_bytes));
    }
    reading_->new_memory = device::allocate_pages(ends.back());
    for (std::size_t index = 0; index < pieces_.size(); ++index) {
      destinations_.push_back(reading_->new_memory.get() + ends[index]);
    }
  }

  void submit(std::size_t index) {
    const SampleRange& piece = pieces_[index];
    const io::ReadRange range{piece.file, piece.offset, piece.bytes, destinations_[index]};
    batches_.push_back(reading_->reader->submit({&range, 1}));
  }

  void await(std::size_t index) {
    core::Deadline deadline(rig_.timeout);
    io::BatchStatus status;
    for (std::uint64_t landed = 0;; landed = status.bytes) {
      status = reading_->reader->poll(batches_[index], poll_patience);
      if (status.done) break;
      if (status.bytes != landed) deadline.restart();
      if (deadline.expired()) give_up();
    }
    if (status.error) raise(*status.error);
  }

  [[noreturn]] void give_up() {
    reading_->reader->cancel();
    reading_->threads.emplace();
    static_cast<void>(reading_.release());  // never freed
    throw TimeoutError("reading: no progress within " + core::seconds_text(rig_.timeout));
  }

  ProbeRig& rig_;
  std::unique_ptr<Reading> reading_;
  const std::vector<SampleRange> pieces_;
  const std::size_t at_a_time_;
  std::vector<std::byte*> destinations_;  // by piece
  std::vector<io::BatchId> batches_;
};

class ReadTrial {
 public:
  ReadTrial(ProbeRig& rig, Cache cache, bool direct, Into into, What what = What::windows)
      : rig_(rig), cache_(cache), direct_(direct), into_(into), what_(what) {}

  std::string prepare() {
    if (rig_.sample.bytes() == 0) return "the files have too few bytes";
    std::string obstacle;
    if (!rig_.is_remote) obstacle = is_warm() ? rig_.sample.make_warm() : rig_.sample.make_cold();
    if (into_ == Into::slabs) rig_.touch_slabs();
    if (into_ == Into::new_memory) written_ = device::allocate_written_pages(rig_.sample.bytes());
    // For that memory, the system may have dropped some pages of the files.
    if (is_warm() && obstacle.empty()) obstacle = rig_.sample.make_warm();
    run_.emplace(rig_, reader_options(rig_, cache_, direct_), into_, what_);
    return obstacle;
  }

  Run run() {
    // When all ranks have written theirs: before, another would have written what this one gave
    // back.
    written_.reset();
    Run run = run_->read();
    if (direct_) run.obstacle = why_not_direct(run_->path());
    run_.reset();
    return run;
  }

 private:
  bool is_warm() const noexcept { return cache_ == Cache::warm; }

  static std::string why_not_direct(const io::IoPath& path) {
    if (path.buffered_bytes == 0) return {};
    return path.fallbacks.empty() ? "the reader read through the page cache"
                                  : path.fallbacks.front();
  }

  ProbeRig& rig_;
  const Cache cache_;
  const bool direct_;
  const Into into_;
  const What what_;
  std::shared_ptr<std::byte> written_;  // what the run gets as new memory
  std::optional<ReadRun> run_;
};

}  // namespace

void add_read_trials(ProbeRig& rig, Trials& trials) {
  const auto add_of = [&](Of of, const char* name, const std::shared_ptr<ReadTrial>& trial,
                          bool is_time = false) {
    trials.push_back({.name = name,
                      .of = of,
                      .is_time = is_time,
                      .prepare = [trial] { return trial->prepare(); },
                      .run = [trial] { return trial->run(); }});
  };
  const auto add = [&](const char* name, Cache cache, bool direct, Into into = Into::slabs) {
    const auto trial = std::make_shared<ReadTrial>(rig, cache, direct, into);
    add_of(Of::one_rank, name, trial);
    if (rig.comm.size() > 1) add_of(Of::node, name, trial);
  };
  if (!rig.is_remote) add("read_cold_direct", Cache::cold, true);
  add("read_cold_buffered", Cache::cold, false);
  if (rig.is_remote) {  // what a server caches is not known
    add_of(Of::one_rank, "request",
           std::make_shared<ReadTrial>(rig, Cache::cold, false, Into::slabs, What::pages), true);
    return;
  }
  add("read_warm", Cache::warm, false);
  if (rig.comm.device() == DeviceKind::host) {
    add("read_warm_fresh", Cache::warm, false, Into::new_memory);
  }
}

void fit_sample(ProbeRig& rig) {
  if (rig.sample.bytes() == 0) return;
  rig.touch_slabs();
  static_cast<void>(rig.sample.make_cold());  // where that is not possible, reading is fast
  ReadRun run(rig, reader_options(rig, Cache::cold, false), Into::slabs, What::windows);
  rig.sample.shrink(run.read().bytes);
  rig.engine = run.path().engine;
  rig.reader_threads = run.path().threads;
}

}  // namespace safeshuffle::probing
