// The engine mmap: leases, locked mappings, what is left mapped, other processes that want to
// change the file meanwhile, and what falls back.
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "safeshuffle/loader.hpp"

#include "core/descriptor.hpp"
#include "core/file_lease.hpp"
#include "core/locked_mapping.hpp"
#include "io/mapping.hpp"
#include "io/reader.hpp"
#include "pipeline/file_slab.hpp"
#include "source/files.hpp"
#include "support/cached_pages.hpp"
#include "support/catch.hpp"
#include "support/device_memory.hpp"
#include "support/ending_process.hpp"
#include "support/no_locked_memory.hpp"
#include "support/other_user.hpp"
#include "support/own_model.hpp"
#include "support/own_process.hpp"
#include "support/sample_file.hpp"
#include "support/sanitizers.hpp"
#include "support/test_staging.hpp"
#include "support/wrapped_files.hpp"

using namespace safeshuffle;
using safeshuffle::testing::AlignedMemory;
using safeshuffle::testing::ScratchDirectory;

namespace {

constexpr std::uint64_t chunk = 16 << 10;
constexpr std::uint64_t file_size = 100'000;
constexpr std::uint64_t shorter = 50'000;
constexpr bool may_leave = true;

// Sanitizers replace mlock by a function that does nothing.
constexpr bool locks_memory = !SAFESHUFFLE_ASAN && !SAFESHUFFLE_TSAN;

core::Descriptor open_file(const std::string& path, int flags) {
  return core::Descriptor(::open(path.c_str(), flags | O_CLOEXEC));
}

/// Another process that truncates a file to `shorter` bytes, as soon as it may.
class Truncating {
 public:
  explicit Truncating(const std::string& path) : process_(::fork()) {
    if (process_ == 0) ::_exit(::truncate(path.c_str(), shorter) == 0 ? 0 : 1);
  }
  ~Truncating() {
    if (!ended_) ::waitpid(process_, nullptr, 0);
  }
  Truncating(const Truncating&) = delete;
  Truncating& operator=(const Truncating&) = delete;

  bool ended() {
    if (!ended_) ended_ = ::waitpid(process_, &status_, WNOHANG) == process_;
    return ended_;
  }

  /// Whether it ends soon, and has truncated the file.
  bool succeeds() {
    testing::wait_until([this] { return ended(); });
    return status_ == 0;
  }

 private:
  const pid_t process_;
  bool ended_ = false;
  int status_ = -1;
};

/// Files about which the reader knows less.
class Limited final : public testing::WrappedFiles {
 public:
  Limited(bool local, bool has_descriptor) : local_(local), has_descriptor_(has_descriptor) {}

  std::unique_ptr<source::Handle> open(const std::string& path,
                                       source::Access access) const override {
    return std::make_unique<Handle>(*this, files_.open(path, access));
  }

 private:
  class Handle final : public source::Handle {
   public:
    Handle(const Limited& limits, std::unique_ptr<source::Handle> real)
        : limits_(limits), real_(std::move(real)) {}

    const core::FileIdentity& identity() const noexcept override { return real_->identity(); }
    bool is_local() const noexcept override { return limits_.local_; }
    int descriptor() const noexcept override {
      return limits_.has_descriptor_ ? real_->descriptor() : -1;
    }
    std::size_t read_some(std::uint64_t offset, std::span<std::byte> to) const override {
      return real_->read_some(offset, to);
    }

   private:
    const Limited& limits_;
    const std::unique_ptr<source::Handle> real_;
  };

  const bool local_;
  const bool has_descriptor_;
};

/// A sample file, and a reader that maps it.
struct Bench {
  io::BatchStatus read(bool leave, const source::Source& source = source::files()) {
    reader = io::make_reader({IoEngine::mmap, DirectIo::off, 2, chunk}, source, {file}, staging);
    return read_more(leave);
  }

  io::BatchStatus read_more(bool leave) {
    const io::ReadRange range{0, 0, file_size, memory.data(), leave};
    const io::BatchId batch = reader->submit({&range, 1});
    io::BatchStatus status;
    while (!status.done) status = reader->poll(batch, std::chrono::seconds(1));
    return status;
  }

  /// What is left of the file, which must be all.
  std::vector<io::LeftRange> leave() {
    io::BatchStatus status = read(may_leave);
    REQUIRE_FALSE(status.error);
    REQUIRE(status.left.size() == 7);
    for (const io::LeftRange& range : status.left) REQUIRE(range.mapping);
    return std::move(status.left);
  }

  bool intact() const { return testing::is_sample(memory.span(), 0, 0); }

  std::string fallback(const std::string& reason) const {
    return file.path + ": mmap fell back to posix: " + reason;
  }

  ScratchDirectory directory;
  FileInfo file = testing::write_sample(directory.file("a"), 0, file_size);
  AlignedMemory memory{file_size};
  testing::DirectStaging staging;
  std::unique_ptr<io::Reader> reader;
};

constexpr const char* no_lease = "no lease to keep it from shrinking: ";

/// Whether a load falls back to reading for this reason, and with `strict` fails.
bool falls_back(const testing::OwnModel& model, const std::string& reason) {
  Options options;
  options.io = IoEngine::mmap;
  options.direct = DirectIo::off;
  const TensorSet loaded = load(model.plan(), self(Device::host()), options);
  const RankReport& rank = loaded.report().ranks[0];
  const bool told = !rank.fallbacks.empty() &&
                    rank.fallbacks[0].find(reason) != std::string::npos &&
                    rank.io_path == "posix buffered";
  options.strict = true;
  try {
    load(model.plan(), self(Device::host()), options);
  } catch (const FallbackError& error) {
    return told && std::string(error.what()).find(reason) != std::string::npos;
  }
  return false;
}

/// Of files in a directory.
std::size_t mappings_below(const std::filesystem::path& directory) {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(directory.string() + "/") != std::string::npos) ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("a process that truncates a leased file waits, and no signal ends the holder", "[mmap]") {
  const Bench bench;
  CHECK(testing::in_ending_process([&] {
    const core::Descriptor descriptor = open_file(bench.file.path, O_RDONLY);
    core::FileLease lease(descriptor.value());
    auto first = lease.hold();
    auto second = lease.hold();
    bool right = lease.is_intact();
    Truncating other(bench.file.path);
    testing::wait_until([&] { return !lease.is_intact(); });
    first.reset();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    right = right && !other.ended() && std::filesystem::file_size(bench.file.path) == file_size;
    second.reset();
    right = right && other.succeeds() && std::filesystem::file_size(bench.file.path) == shorter;
    ::_exit(right ? 0 : 1);
  }));
}

TEST_CASE("an open for writing that must not block fails, and breaks the lease", "[mmap]") {
  const Bench bench;
  const core::Descriptor descriptor = open_file(bench.file.path, O_RDONLY);
  core::FileLease lease(descriptor.value());
  auto hold = lease.hold();
  CHECK(lease.is_intact());
  CHECK_FALSE(open_file(bench.file.path, O_RDONLY | O_NONBLOCK).value() == -1);
  CHECK(lease.is_intact());
  CHECK(open_file(bench.file.path, O_WRONLY | O_NONBLOCK).value() == -1);
  CHECK(errno == EWOULDBLOCK);
  CHECK_FALSE(lease.is_intact());
  hold.reset();
  CHECK(open_file(bench.file.path, O_WRONLY | O_NONBLOCK).value() != -1);
  hold = lease.hold();
  CHECK(lease.is_intact());
}

TEST_CASE("a mapping has the bytes of any range, locked in memory", "[mmap]") {
  const Bench bench;
  const core::Descriptor descriptor = open_file(bench.file.path, O_RDONLY);
  for (const std::uint64_t offset : {0U, 1U, 4095U, 4096U, 70'001U}) {
    for (const std::size_t bytes : {1U, 4096U, 29'999U}) {
      const core::LockedMapping mapping(descriptor.value(), offset, bytes);
      CHECK(mapping.bytes().size() == bytes);
      CHECK(testing::is_sample(mapping.bytes(), 0, offset));
    }
  }
  if (locks_memory) {
    CHECK_THROWS_AS(core::LockedMapping(descriptor.value(), 2 * file_size, 1), IoError);
  }
}

TEST_CASE("what may be left is mapped, and all else copied from a mapping", "[mmap]") {
  Bench bench;
  const bool leave = GENERATE(true, false);
  const io::BatchStatus status = bench.read(leave);
  CHECK_FALSE(status.error);
  CHECK(status.bytes == file_size);
  CHECK(bench.intact() == !leave);
  std::uint64_t left = 0;
  for (const io::LeftRange& range : status.left) {
    REQUIRE(range.mapping);
    CHECK(testing::is_sample({io::view(range, 0), range.bytes}, 0, range.offset));
    CHECK(io::view(range, 5) == io::view(range, 0) + 5);
    left += range.bytes;
  }
  CHECK(left == (leave ? file_size : 0));
  REQUIRE(status.activities.size() == 1);
  CHECK(status.activities[0].worker == io::Worker::mmap);
  const io::IoPath path = bench.reader->path();
  CHECK(path.engine == "mmap");
  CHECK(path.mode == "buffered");
  CHECK(path.buffered_bytes == file_size);
  CHECK(path.mapped_bytes == file_size);
  CHECK(path.most_mapped_bytes <= file_size);
  CHECK(path.most_mapped_bytes >= (leave ? file_size : 1));
  CHECK(path.fallbacks.empty());
}

TEST_CASE("files in tmpfs are mapped", "[mmap]") {
  if (::access("/dev/shm", W_OK) != 0) {
    WARN("skipped: /dev/shm is not writable");
    return;
  }
  Bench bench;
  const ScratchDirectory directory("/dev/shm");
  bench.file = testing::write_sample(directory.file("a"), 0, file_size);
  for (const io::LeftRange& range : bench.leave()) {
    CHECK(testing::is_sample({io::view(range, 0), range.bytes}, 0, range.offset));
  }
  CHECK(bench.reader->path().engine == "mmap");
}

TEST_CASE("what is cold is read directly, as by threads", "[mmap]") {
  Bench bench;
  const bool cold = testing::make_cold(bench.file.path);
  bench.reader = io::make_reader({IoEngine::mmap, DirectIo::automatic, 2, chunk}, source::files(),
                                 {bench.file}, bench.staging);
  const io::BatchStatus status = bench.read_more(may_leave);
  const io::IoPath path = bench.reader->path();
  if (!cold || path.buffered_bytes != 0) {
    WARN("skipped: the filesystem of " << bench.file.path << " keeps its pages");
    return;
  }
  CHECK(status.left.empty());
  CHECK(bench.intact());
  CHECK(path.engine == "posix");
  CHECK(path.fallbacks.empty());
}

TEST_CASE("mappings keep few files open, and end with what was left", "[mmap]") {
  Bench bench;
  constexpr std::uint32_t count = 80;  // more than are kept open
  constexpr std::uint64_t size = 10'000;
  std::vector<FileInfo> files;
  for (std::uint32_t i = 0; i < count; ++i) {
    files.push_back(testing::write_sample(bench.directory.file(std::to_string(i)), i, size));
  }
  const AlignedMemory memory(count * size);
  const std::ptrdiff_t descriptors = testing::open_descriptors();
  bench.reader = io::make_reader({IoEngine::mmap, DirectIo::off, 2, chunk}, source::files(), files,
                                 bench.staging);
  std::vector<io::ReadRange> ranges;
  for (std::uint32_t i = 0; i < count; ++i) {
    ranges.push_back({i, 0, size, memory.data() + i * size, may_leave});
  }
  bench.reader->submit(ranges);
  io::BatchStatus status;
  while (!status.done) status = bench.reader->poll(0, std::chrono::seconds(1));
  CHECK_FALSE(status.error);
  CHECK(bench.reader->path().engine == "mmap");
  CHECK(!status.left.empty());
  CHECK(status.left.size() < count);
  CHECK(testing::open_descriptors() < descriptors + count);
  const pipeline::FileSlab slab(memory.data(), std::move(status.left));
  std::vector<std::byte> bytes(size);
  for (std::uint32_t i = 0; i < count; ++i) {
    slab.read(i * size, bytes);
    CHECK(testing::is_sample(bytes, i, 0));
  }
}

TEST_CASE("what nobody asks for of what was left does not count as read", "[mmap]") {
  Bench bench;
  const pipeline::FileSlab slab(bench.memory.data(), bench.leave());
  std::vector<std::byte> bytes(chunk + 100);
  slab.read(0, bytes);
  slab.read(0, std::span(bytes).first(chunk));  // of a range no more than all counts
  REQUIRE(slab.view(3 * chunk + 1, 50) != nullptr);
  CHECK(slab.view(4 * chunk - 1, 2) == nullptr);  // not in one mapping
  CHECK(bench.reader->path().buffered_bytes == file_size);
  slab.note_unread();
  const io::IoPath path = bench.reader->path();
  CHECK(path.buffered_bytes == chunk + 100 + 50);
  CHECK(path.mapped_bytes == path.buffered_bytes);
}

TEST_CASE("a file that another process truncates while it is mapped is read instead", "[mmap]") {
  Bench bench;
  std::vector<io::LeftRange> left = bench.leave();
  Truncating other(bench.file.path);
  testing::wait_until([&] { return !left[0].mapping->is_safe(); });
  CHECK_FALSE(other.ended());
  CHECK(testing::is_sample({io::view(left[6], 0), left[6].bytes}, 0, left[6].offset));
  const pipeline::FileSlab slab(bench.memory.data(), std::move(left));
  CHECK(other.succeeds());
  for (std::uint64_t at = 0; at < file_size; at += chunk) CHECK(slab.view(at, 1) == nullptr);
  std::vector<std::byte> bytes(file_size);
  CHECK_NOTHROW(slab.read(0, std::span(bytes).first(shorter)));
  CHECK(testing::is_sample(std::span(bytes).first(shorter), 0, 0));
  CHECK_THROWS_AS(slab.read(0, bytes), IoError);
  CHECK_THROWS_AS(slab.check_unchanged(source::files()), IoError);
  const io::IoPath path = bench.reader->path();
  CHECK(path.engine == "posix");
  CHECK(path.buffered_bytes == file_size);
  CHECK(path.fallbacks == std::vector<std::string>{bench.fallback(io::file_in_demand)});
}

TEST_CASE("a file that another process wants to truncate is not mapped any more", "[mmap]") {
  Bench bench;
  {
    std::vector<io::LeftRange> left = bench.leave();
    Truncating other(bench.file.path);
    testing::wait_until([&] { return !left[0].mapping->is_safe(); });
    const io::BatchStatus status = bench.read_more(may_leave);
    CHECK_FALSE(status.error);
    for (const io::LeftRange& range : status.left) CHECK_FALSE(range.mapping);
    CHECK_FALSE(other.ended());
    left.clear();
  }
  const io::IoPath path = bench.reader->path();
  CHECK(path.engine == "mmap+posix");
  REQUIRE(path.fallbacks.size() == 1);
  CHECK(path.fallbacks[0] ==
        bench.file.path +
            ": mmap fell back to posix for 100000 of 200000 bytes: " + io::file_in_demand);
}

TEST_CASE("a file that shrank before it is mapped is an error", "[mmap]") {
  Bench bench;
  const bool leave = GENERATE(true, false);
  REQUIRE_FALSE(bench.read(leave).error);
  std::filesystem::resize_file(bench.file.path, shorter);
  const io::BatchStatus status = bench.read_more(leave);
  if (status.left.empty()) {
    REQUIRE(status.error);
    CHECK(status.error->file == bench.file.path);
  } else {
    for (const io::LeftRange& range : status.left) CHECK_FALSE(range.mapping);
    CHECK_THROWS_AS(io::check_unchanged(status.left[0], source::files()), IoError);
  }
}

TEST_CASE("what cannot be mapped is read, and the reason is told", "[mmap]") {
  Bench bench;
  core::Descriptor writer;
  std::string reason;
  const source::Source* source = &source::files();
  const Limited elsewhere(false, true);
  const Limited no_file(true, false);
  SECTION("somebody has it open for writing") {
    writer = open_file(bench.file.path, O_WRONLY);
    reason = no_lease + std::string("a process has it open for writing");
  }
  SECTION("on a network filesystem") {
    source = &elsewhere;
    reason = "not a local filesystem";
  }
  SECTION("no file") {
    source = &no_file;
    reason = "it has no file descriptor";
  }
  const io::BatchStatus status = bench.read(false, *source);
  CHECK_FALSE(status.error);
  CHECK(bench.intact());
  CHECK(status.activities[0].worker == io::Worker::posix);
  const io::IoPath path = bench.reader->path();
  CHECK(path.engine == "posix");
  CHECK(path.fallback_files == 1);
  CHECK(path.fallbacks == std::vector<std::string>{bench.fallback(reason)});
}

TEST_CASE("nothing of a wave is mapped once it is packed", "[mmap]") {
  const testing::OwnModel model(3);
  Options options;
  options.io = IoEngine::mmap;
  options.direct = DirectIo::off;
  std::size_t at_end = ~std::size_t{0};
  options.on_progress = [&](const Progress& progress) {
    if (progress.wave == progress.waves) at_end = mappings_below(model.directory.path());
  };
  const TensorSet loaded = load(model.plan(), self(Device::host()), options);
  CHECK(loaded.report().ranks[0].io_path == "mmap buffered");
  CHECK(at_end == 0);
}

TEST_CASE("without a lease or locked memory, loads read, which is an error if strict", "[mmap]") {
  const testing::OwnModel model(3);
  const auto falls_back_if = [&](const auto& arrange, const std::string& reason) {
    return testing::in_ending_process(
        [&] { ::_exit(arrange() && falls_back(model, reason) ? 0 : 1); });
  };
  if (locks_memory) CHECK(falls_back_if(testing::forbid_locked_memory, "(ulimit -l: 0 KiB): "));
  if (!testing::is_root()) {
    WARN("skipped: only root can become somebody else, who does not own the files");
    return;
  }
  testing::permit_others_to_read(model.directory.path());
  const auto as_nobody = [] {
    testing::become_nobody();
    return true;
  };
  CHECK(falls_back_if(as_nobody, no_lease + std::string("this user does not own it")));
}
