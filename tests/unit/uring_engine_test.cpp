// io_uring: what the kernel answers, more reads than may be in flight, and machines without it.
#include "io/uring_engine.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "safeshuffle/loader.hpp"

#include "core/defaults.hpp"
#include "core/descriptor.hpp"
#include "core/page.hpp"
#include "io/policy.hpp"
#include "io/reader.hpp"
#include "source/files.hpp"
#include "support/catch.hpp"
#include "support/device_memory.hpp"
#include "support/ending_process.hpp"
#include "support/io_uring.hpp"
#include "support/no_io_uring.hpp"
#include "support/own_model.hpp"
#include "support/sample_file.hpp"
#include "support/test_staging.hpp"
#include "support/uring_info.hpp"
#include "support/wrapped_files.hpp"

using namespace safeshuffle;
using safeshuffle::testing::AlignedMemory;
using safeshuffle::testing::has_io_uring;
using safeshuffle::testing::ScratchDirectory;

namespace {

constexpr std::uint64_t uring_file_size = 100'000;

/// Files whose direct reads are made from another descriptor.
class Misdirected final : public testing::WrappedFiles {
 public:
  explicit Misdirected(core::Descriptor descriptor) : descriptor_(std::move(descriptor)) {}

  std::unique_ptr<source::Handle> open(const std::string& path,
                                       source::Access access) const override {
    auto real = files_.open(path, source::Access::cached);
    if (access == source::Access::cached) return real;
    return std::make_unique<Handle>(std::move(real), descriptor_.value());
  }

 private:
  class Handle final : public source::Handle {
   public:
    Handle(std::unique_ptr<source::Handle> real, int descriptor)
        : real_(std::move(real)), descriptor_(descriptor) {}

    const core::FileIdentity& identity() const noexcept override { return real_->identity(); }
    int descriptor() const noexcept override { return descriptor_; }
    std::size_t read_some(std::uint64_t, std::span<std::byte>) const override { return 0; }

   private:
    const std::unique_ptr<source::Handle> real_;
    const int descriptor_;
  };

  const core::Descriptor descriptor_;
};

/// A sample file, and memory for it.
struct UringBench {
  /// Reads it from `source` with io_uring.
  io::BatchStatus read(const source::Source& source) {
    reader = io::make_reader({IoEngine::uring, DirectIo::on, 1, core::mebibyte}, source, {file},
                             staging);
    const io::ReadRange range{0, 0, file.size, memory.data()};
    reader->submit({&range, 1});
    io::BatchStatus status;
    testing::wait_until(
        [&] { return (status = reader->poll(0, std::chrono::milliseconds(1))).done; });
    return status;
  }

  ScratchDirectory directory;
  FileInfo file = testing::write_sample(directory.file("a"), 0, uring_file_size);
  AlignedMemory memory{uring_file_size};
  testing::DirectStaging staging;
  std::unique_ptr<io::Reader> reader;
};

/// Reads a part of a file, and counts itself.
class CountedJob final : public io::Job {
 public:
  CountedJob(std::shared_ptr<io::File> file, std::uint64_t offset, std::span<std::byte> to,
             std::atomic<std::size_t>& ended)
      : file_(std::move(file)), offset_(offset), to_(to), ended_(ended) {}

  io::RangeRead& begin() override {
    return reading_.emplace(file_, offset_, device::StagingSlot{.host = to_}, false);
  }

  void end(std::exception_ptr error) noexcept override {
    if (!error) ++ended_;
  }

 private:
  const std::shared_ptr<io::File> file_;
  const std::uint64_t offset_;
  const std::span<std::byte> to_;
  std::atomic<std::size_t>& ended_;
  std::optional<io::RangeRead> reading_;
};

}  // namespace

TEST_CASE("direct reads are made by the ring, and the page cache is read by threads", "[uring]") {
  if (!has_io_uring()) return;
  UringBench bench;
  const io::BatchStatus by_ring = bench.read(source::files());
  CHECK_FALSE(by_ring.error);
  REQUIRE(by_ring.reads);
  CHECK(by_ring.reads->begin < by_ring.reads->end);
  CHECK(testing::is_sample(bench.memory.span(), 0, 0));
  const io::IoPath path = bench.reader->path();
  if (path.fallbacks.empty()) {
    CHECK((path.engine == "uring" && path.mode == "direct"));
  }
  bench.reader = io::make_reader({IoEngine::uring, DirectIo::off, 1, core::mebibyte},
                                 source::files(), {bench.file}, bench.staging);
  const io::ReadRange range{0, 0, uring_file_size, bench.memory.data()};
  bench.reader->submit({&range, 1});
  io::BatchStatus by_threads;
  testing::wait_until(
      [&] { return (by_threads = bench.reader->poll(0, std::chrono::milliseconds(1))).done; });
  REQUIRE(by_threads.reads);
  CHECK(by_threads.reads->begin < by_threads.reads->end);
  CHECK_FALSE(by_threads.copies);
  CHECK(bench.reader->path().engine == "posix");
  CHECK(bench.reader->path().fallbacks.empty());
}

TEST_CASE("an error of a read in the ring names file, offset and errno", "[uring]") {
  if (!has_io_uring()) return;
  const Misdirected source(core::Descriptor(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  UringBench bench;
  const io::BatchStatus status = bench.read(source);
  REQUIRE(status.error);
  CHECK(status.error->kind == ErrorKind::io);
  CHECK(status.error->code == EISDIR);
  CHECK(status.error->file == bench.file.path);
  CHECK(status.error->offset == 0);
  CHECK(status.error->cause == "cannot read: Is a directory");
}

TEST_CASE("what the ring does not deliver is read by threads, as a fallback", "[uring]") {
  if (!has_io_uring()) return;
  const Misdirected source(core::Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)));
  UringBench bench;
  CHECK_FALSE(bench.read(source).error);
  CHECK(testing::is_sample(bench.memory.span(), 0, 0));
  const io::IoPath path = bench.reader->path();
  CHECK(path.engine == "uring+posix");
  CHECK(path.mode == "buffered");
  REQUIRE(path.fallbacks.size() == 1);
  CHECK(
      path.fallbacks[0] ==
      bench.file.path +
          ": direct I/O fell back to buffered: a direct read returned fewer bytes than requested");
}

TEST_CASE("more reads than may be in flight are all made", "[uring]") {
  if (!has_io_uring()) return;
  UringBench bench;
  io::PathRecorder recorder;
  const auto file = std::make_shared<io::File>(bench.file, DirectIo::on, source::files(), recorder);
  std::atomic<std::size_t> ended{0};
  std::size_t jobs = 0;
  {
    const auto engine = io::make_uring_engine(2, 3);
    for (std::uint64_t at = 0; at < uring_file_size; at += core::page_bytes, ++jobs) {
      const std::uint64_t bytes = std::min(core::page_bytes, uring_file_size - at);
      engine->start(
          std::make_unique<CountedJob>(file, at, bench.memory.span().subspan(at, bytes), ended));
    }
    testing::wait_until([&] { return ended == jobs; });
  }
  CHECK(testing::is_sample(bench.memory.span(), 0, 0));
}

namespace {

/// Whether all of so many small files are read where so few may be open.
bool reads_all(std::uint32_t count, rlim_t descriptors) {
  return testing::in_ending_process([&] {
    const rlimit limit{descriptors, descriptors};
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::_exit(1);
    const ScratchDirectory directory;
    const AlignedMemory memory(count * core::page_bytes);
    std::vector<FileInfo> files;
    std::vector<io::ReadRange> ranges;
    for (std::uint32_t i = 0; i < count; ++i) {
      files.push_back(
          testing::write_sample(directory.file(std::to_string(i)), i, core::page_bytes));
      ranges.push_back({i, 0, core::page_bytes, memory.data() + std::size_t{i} * core::page_bytes});
    }
    testing::DirectStaging staging;
    const auto reader = io::make_reader({IoEngine::uring, DirectIo::on, 4, core::smallest_chunk},
                                        source::files(), files, staging);
    reader->submit(ranges);
    io::BatchStatus status;
    testing::wait_until(
        [&] { return (status = reader->poll(0, std::chrono::milliseconds(1))).done; });
    bool right = !status.error;
    for (std::uint32_t i = 0; i < count; ++i) {
      right = right && testing::is_sample(
                           memory.span().subspan(i * core::page_bytes, core::page_bytes), i, 0);
    }
    std::filesystem::remove_all(directory.file(""));
    ::_exit(right ? 0 : 1);
  });
}

}  // namespace

TEST_CASE("more files than may be open are all read", "[uring]") {
  if (!has_io_uring()) return;
  CHECK(reads_all(400, 200));
}

namespace {

constexpr const char* plain_read = "op=22,";  // IORING_OP_READ

/// Reads of a file with io_uring that end when this is destroyed: its descriptor is a pipe's.
class UnansweredReads {
 public:
  UnansweredReads(std::size_t count, std::uint64_t bytes) : memory_(bytes) {
    const std::string path = directory_.file("sparse");
    std::ofstream(path).put('x');
    std::filesystem::resize_file(path, bytes);
    std::array<int, 2> ends{};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    writer_ = core::Descriptor(ends[1]);
    source_.emplace(core::Descriptor(ends[0]));
    info_ = testing::describe_file(path);
    const auto file = std::make_shared<io::File>(info_, DirectIo::on, *source_, recorder_);
    engine_ = io::make_uring_engine(count, 1);
    for (std::size_t i = 0; i < count; ++i) {
      engine_->start(std::make_unique<CountedJob>(file, 0, memory_.span(), ended_));
    }
  }

  ~UnansweredReads() {
    writer_ = core::Descriptor();  // then threads read what the pipe has not delivered
    engine_.reset();
  }

  UnansweredReads(const UnansweredReads&) = delete;
  UnansweredReads& operator=(const UnansweredReads&) = delete;

 private:
  ScratchDirectory directory_;
  AlignedMemory memory_;
  FileInfo info_;
  core::Descriptor writer_;
  std::optional<Misdirected> source_;
  io::PathRecorder recorder_;
  std::atomic<std::size_t> ended_{0};
  std::unique_ptr<io::Engine> engine_;
};

}  // namespace

TEST_CASE("256 MiB of reads are in flight at once", "[uring]") {
  if (!has_io_uring()) return;
  const auto device = GENERATE(DeviceKind::host, DeviceKind::cuda);
  const std::uint64_t chunk = core::defaults_on(device).chunk;
  const std::size_t reads = device == DeviceKind::cuda ? 128 : 32;
  REQUIRE(io::reads_in_flight(chunk) == reads);
  REQUIRE(reads * chunk >= 256 * core::mebibyte);
  const UnansweredReads in_flight(reads, chunk);
  constexpr std::size_t of_wakes = 1;
  testing::wait_until([&] { return testing::count_uring_info(plain_read) == reads + of_wakes; });
}

TEST_CASE("without io_uring, threads read, which is a fallback if it was asked for", "[uring]") {
  const testing::OwnModel model(3);
  const auto works = [&](IoEngine engine, bool strict) {
    return testing::in_ending_process([&] {
      if (!testing::forbid_io_uring()) ::_exit(1);
      Options options;
      options.io = engine;
      options.strict = strict;
      const TensorSet loaded = load(model.plan(), self(Device::host()), options);
      const RankReport& rank = loaded.report().ranks[0];
      const bool right = engine == IoEngine::uring
                             ? rank.fallbacks.size() == 1 &&
                                   rank.fallbacks[0].starts_with("uring fell back to posix: ")
                             : rank.fallbacks.empty();
      ::_exit(right && rank.io_path.starts_with("posix ") ? 0 : 1);
    });
  };
  const auto fails_under_strict = [&] {
    return testing::in_ending_process([&] {
      if (!testing::forbid_io_uring()) ::_exit(1);
      Options options;
      options.io = IoEngine::uring;
      options.strict = true;
      try {
        load(model.plan(), self(Device::host()), options);
      } catch (const FallbackError&) {
        ::_exit(0);
      }
      ::_exit(1);
    });
  };
  CHECK(works(IoEngine::automatic, true));
  CHECK(works(IoEngine::uring, false));
  CHECK(fails_under_strict());
}
