// The timeline of a load, and what it proves: reading overlaps copying, packing and exchange.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/loader.hpp"

#include "comm/control/control.hpp"
#include "comm/exchange/transport.hpp"
#include "core/arithmetic.hpp"
#include "core/deadline.hpp"
#include "core/page.hpp"
#include "pipeline/load_job.hpp"
#include "support/catch.hpp"
#include "support/group.hpp"
#include "support/shared_model.hpp"
#include "support/wrapped_files.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

constexpr std::uint64_t window = 4096;

/// More than the error in reading a GPU's clock, even on a busy machine.
constexpr std::chrono::milliseconds clock_error{20};

/// Files that do not tell what is cached, so that all is read by threads, with a hook before and
/// one after each read.
class HookedFiles final : public WrappedFiles {
 public:
  using Hook = std::function<void(const std::string& path, std::uint64_t offset)>;

  explicit HookedFiles(Hook before = ignore, Hook after = ignore)
      : before_(std::move(before)), after_(std::move(after)) {}

  std::unique_ptr<source::Handle> open(const std::string& path,
                                       source::Access access) const override {
    return std::make_unique<Hooked>(*this, path, files_.open(path, access));
  }

 private:
  static void ignore(const std::string& /*path*/, std::uint64_t /*offset*/) {}

  class Hooked final : public source::Handle {
   public:
    Hooked(const HookedFiles& files, std::string path, std::unique_ptr<source::Handle> file)
        : files_(files), path_(std::move(path)), file_(std::move(file)) {}

    const core::FileIdentity& identity() const noexcept override { return file_->identity(); }
    std::size_t read_some(std::uint64_t offset, std::span<std::byte> to) const override {
      files_.before_(path_, offset);
      const std::size_t bytes = file_->read_some(offset, to);
      files_.after_(path_, offset);
      return bytes;
    }

   private:
    const HookedFiles& files_;
    const std::string path_;
    const std::unique_ptr<source::Handle> file_;
  };

  const Hook before_;
  const Hook after_;
};

/// What is read of one wave by a rank that reads `file` first.
struct WaveRange {
  std::string path;
  std::uint64_t begin = 0;

  WaveRange(const SharedModel& model, std::uint32_t file, std::uint32_t wave)
      : path(model_file(model.path(), file)),
        begin(model.catalog.find(numbered("cut", file))->file_offset + wave * window) {}

  /// Whether a call reads it. Direct ones read the whole of its pages.
  bool is_read(const std::string& other, std::uint64_t offset) const {
    return other == path &&
           (offset == begin || offset == core::align_down(begin, core::page_bytes));
  }
};

/// As `plain_model`, of tensors that are split by columns, so that every wave is packed.
RandomModel columns_model(std::uint32_t files) {
  std::vector<std::vector<Made>> made;
  for (std::uint32_t file = 0; file < files; ++file) {
    made.push_back({{numbered("cut", file), DType::F32, {80, 128}}});
  }
  return {make_catalog(made), std::vector<Placement>(files, cut(1, 128, true))};
}

/// From one thread to another.
class Signal {
 public:
  void give() {
    std::call_once(once_, [this] { given_.set_value(); });
  }
  void wait() {
    if (future_.wait_for(std::chrono::seconds(300)) != std::future_status::ready) {
      throw IoError("waited for what should go on meanwhile");
    }
  }

 private:
  std::once_flag once_;
  std::promise<void> given_;
  std::future<void> future_ = given_.get_future();
};

/// That of the shared group, with a hook before and one after it connects.
class HookedTransport final : public comm::Transport {
 public:
  using Hook = std::function<void()>;

  HookedTransport(Hook before, Hook after) : before_(std::move(before)), after_(std::move(after)) {}

  std::string name() const override { return inner_.name(); }
  std::uint64_t device_bytes() const noexcept override { return inner_.device_bytes(); }
  std::unique_ptr<comm::Pending> exchange(comm::Exchange exchange, device::Queue& queue) override {
    return inner_.exchange(std::move(exchange), queue);
  }
  std::unique_ptr<comm::Pending> connect(device::Queue& queue) override {
    before_();
    return std::make_unique<Connecting>(inner_.connect(queue), after_);
  }

 private:
  class Connecting final : public comm::Pending {
   public:
    Connecting(std::unique_ptr<comm::Pending> inner, const Hook& after)
        : inner_(std::move(inner)), after_(after) {}

    bool done() override {
      if (inner_ && !inner_->done()) return false;
      after_();
      return true;
    }
    std::uint8_t least_vote() const override { return inner_ ? inner_->least_vote() : 1; }

   private:
    const std::unique_ptr<comm::Pending> inner_;
    const Hook& after_;
  };

  comm::Transport& inner_ = shared_group().transport();
  const Hook before_;
  const Hook after_;
};

void wait_for_file(const std::string& path) {
  const core::Deadline deadline(std::chrono::seconds(300));
  while (!std::filesystem::exists(path)) {
    if (deadline.expired()) throw IoError("the other rank does not read ahead");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Report trace(const source::Source& source, const SharedModel& model,
             const Communicator& group = shared_group()) {
  Options options;
  options.trace = true;
  options.direct = GENERATE(DirectIo::off, DirectIo::on);
  options.threads = 2;
  const Report report =
      pipeline::planned_load(borrowed(source), model.plan(with_window(window)), group, options)
          ->run()
          .report();
  if (options.direct == DirectIo::on && report.ranks[0].direct_bytes == 0) {
    WARN("no direct reads on the filesystem of " << model.path());
  }
  return report;
}

double end(const Span& span) {
  return span.begin + span.seconds;
}

std::set<Span::Track> tracks_of(const RankReport& rank) {
  std::set<Span::Track> tracks;
  for (const Span& span : rank.spans) tracks.insert(span.track);
  return tracks;
}

/// Of those with numbered names such as "wave 3", by number.
std::map<std::uint32_t, Span> numbered_spans(const RankReport& rank, Span::Track track,
                                             const std::string& prefix) {
  std::map<std::uint32_t, Span> spans;
  for (const Span& span : rank.spans) {
    if (span.track != track || !span.name.starts_with(prefix + " ")) continue;
    spans[static_cast<std::uint32_t>(std::stoul(span.name.substr(prefix.size() + 1)))] = span;
  }
  return spans;
}

/// Of the loading thread, in order.
std::vector<Span> phases_of(const RankReport& rank, const std::string& name) {
  std::vector<Span> phases;
  for (const Span& span : rank.spans) {
    if (span.track == Span::Track::phases && span.name == name) phases.push_back(span);
  }
  return phases;
}

/// By wave.
std::vector<Span> exchanges_of(const RankReport& rank) {
  return phases_of(rank, "exchange");
}

/// Of those in order.
Span last_before(const Span& span, const std::vector<Span>& others) {
  const auto after = std::ranges::upper_bound(others, span.begin, {}, &Span::begin);
  REQUIRE(after != others.begin());
  return *std::prev(after);
}

}  // namespace

TEST_CASE("the timeline has a row for all that works by itself", "[load][trace]") {
  const SharedModel model(plain_model(9));
  const HookedFiles files;
  const Report report = trace(files, model);
  std::set<Span::Track> expected{Span::Track::phases};
  if (tests_gpus()) expected.insert({Span::Track::copies, Span::Track::stream});
  for (const RankReport& rank : report.ranks) {
    auto of_rank = expected;
    if (rank.read_bytes != 0) of_rank.insert(Span::Track::reads);
    if (rank.read_bytes == 0) of_rank.erase(Span::Track::copies);
    CHECK(tracks_of(rank) == of_rank);
  }
}

TEST_CASE("a slab is read into only when its exchange has ended", "[load][trace]") {
  const SharedModel model(plain_model(9));
  const HookedFiles files;
  const Report report = trace(files, model);
  for (const RankReport& rank : report.ranks) {
    const std::vector<Span> exchanges = exchanges_of(rank);
    REQUIRE(exchanges.size() == report.waves);
    REQUIRE(exchanges.size() > 10);
    for (const auto& [wave, read] : numbered_spans(rank, Span::Track::reads, "wave")) {
      if (wave >= 3) CHECK(read.begin >= end(exchanges[wave - 3]));
    }
  }
}

TEST_CASE("the time to the first tensor ends with the last wave that has a part of it",
          "[load][trace]") {
  const SharedModel model(plain_model(9));
  const HookedFiles files;
  const Report report = trace(files, model);
  const std::uint64_t last = model.catalog.find(numbered("cut", 0))->bytes / window - 1;
  for (const RankReport& rank : report.ranks) {
    const std::vector<Span> exchanges = exchanges_of(rank);
    CHECK(rank.first_tensor_seconds > end(exchanges.at(last / 2)));  // it leaves gaps out
    CHECK(rank.first_tensor_seconds < exchanges.at(last + 1).begin);
  }
}

TEST_CASE("the wave after the next is read while a wave is exchanged", "[load][trace]") {
  if (world_size() == 1) return;
  const SharedModel model(plain_model(world_size()));
  // The last rank reads wave 1, which the first waits for, when the first has read wave 3.
  const std::uint32_t last = world_size() - 1;
  const WaveRange held(model, last, 1);
  const WaveRange ahead(model, 0, 3);
  const std::string marker = model.directory / "read-ahead";
  const HookedFiles files(
      [&](const std::string& path, std::uint64_t offset) {
        if (held.is_read(path, offset)) wait_for_file(marker);
      },
      [&](const std::string& path, std::uint64_t offset) {
        if (ahead.is_read(path, offset)) std::ofstream(marker).put('!');
      });
  const Report report = trace(files, model);
  const std::vector<Span> exchanges = exchanges_of(report.ranks[0]);
  const Span read = numbered_spans(report.ranks[0], Span::Track::reads, "wave").at(3);
  CHECK(read.begin > end(exchanges.at(0)));
  CHECK(end(read) < end(exchanges.at(1)));
}

TEST_CASE("peers are connected while the first wave is read", "[load][trace]") {
  const SharedModel model(plain_model(world_size()));
  const WaveRange first(model, world_rank(), 0);
  Signal reads;
  Signal is_connected;
  const HookedFiles files([&](const std::string& path, std::uint64_t offset) {
    if (!first.is_read(path, offset)) return;
    reads.give();
    is_connected.wait();
  });
  const std::shared_ptr<comm::Control> control(std::shared_ptr<void>(),
                                               &shared_group().control());  // not owned
  const auto transport =
      std::make_shared<HookedTransport>([&] { reads.wait(); }, [&] { is_connected.give(); });
  const Communicator group(control, transport, shared_group().device_handle());
  CHECK_NOTHROW(trace(files, model, group));
}

TEST_CASE("a wave is copied, packed and exchanged while the next is read", "[load][trace]") {
  if (world_size() == 1) return;  // nothing is packed
  const SharedModel model(columns_model(world_size()));
  const WaveRange first(model, world_rank(), 0);
  const WaveRange held(model, world_rank(), 1);
  const WaveRange after(model, world_rank(), 3);
  // Wave 3 is read into the slab of wave 0 as soon as that has been exchanged.
  Signal next_is_read;
  Signal slab_is_free;
  const HookedFiles files([&](const std::string& path, std::uint64_t offset) {
    if (first.is_read(path, offset)) next_is_read.wait();
    if (held.is_read(path, offset)) {
      std::this_thread::sleep_for(clock_error);
      next_is_read.give();
      slab_is_free.wait();
      std::this_thread::sleep_for(clock_error);
    }
    if (after.is_read(path, offset)) slab_is_free.give();
  });
  const RankReport rank = trace(files, model).ranks[world_rank()];
  const Span read = numbered_spans(rank, Span::Track::reads, "wave").at(1);
  const auto is_during_read = [&](const Span& span) {
    return span.begin >= read.begin && end(span) <= end(read);
  };
  const Span exchange = exchanges_of(rank).at(0);
  CHECK(is_during_read(exchange));
  CHECK(is_during_read(last_before(exchange, phases_of(rank, "pack"))));
  if (!tests_gpus()) return;
  CHECK(is_during_read(numbered_spans(rank, Span::Track::copies, "wave").at(0)));
  CHECK(is_during_read(numbered_spans(rank, Span::Track::stream, "pack").at(0)));
}

TEST_CASE("a GPU's row tells what its stream does, in order", "[load][trace]") {
  if (!tests_gpus()) return;
  const SharedModel model(plain_model(9));
  const HookedFiles files;
  const Report report = trace(files, model);
  for (const RankReport& rank : report.ranks) {
    // GPUs count milliseconds in a float.
    constexpr double rounding = 1e-5;
    const auto exchanges = numbered_spans(rank, Span::Track::stream, "exchange");
    CHECK(exchanges.size() == report.waves);
    for (const auto& [wave, pack] : numbered_spans(rank, Span::Track::stream, "pack")) {
      CHECK(pack.seconds >= -rounding);
      CHECK(exchanges.at(wave).seconds >= -rounding);
      CHECK(end(pack) <= exchanges.at(wave).begin + rounding);
    }
    for (const auto& [wave, copy] : numbered_spans(rank, Span::Track::copies, "wave")) {
      const Span read = numbered_spans(rank, Span::Track::reads, "wave").at(wave);
      CHECK(copy.begin >= read.begin);
      CHECK(end(copy) >= end(read));
    }
  }
}
