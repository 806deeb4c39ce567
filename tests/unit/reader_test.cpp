// io: splitting into pieces, faults of the source, direct I/O and its fallbacks.
#include "io/reader.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <limits>
#include <map>
#include <mutex>
#include <thread>

#include "core/arithmetic.hpp"
#include "core/deadline.hpp"
#include "core/page.hpp"
#include "core/page_cache.hpp"
#include "core/posix_file.hpp"
#include "core/system_call.hpp"
#include "io/path_recorder.hpp"
#include "io/pieces.hpp"
#include "source/files.hpp"
#include "support/cached_pages.hpp"
#include "support/catch.hpp"
#include "support/ending_process.hpp"
#include "support/other_user.hpp"
#include "support/own_process.hpp"
#include "support/sample_file.hpp"
#include "support/test_staging.hpp"
#include "support/wrapped_files.hpp"

using namespace safeshuffle;
using safeshuffle::testing::AlignedMemory;
using safeshuffle::testing::ScratchDirectory;

namespace {

/// Files that cannot be opened and read as told.
class FaultySource final : public testing::WrappedFiles {
 public:
  std::unique_ptr<source::Handle> open(const std::string& path,
                                       source::Access access) const override {
    const bool direct = access == source::Access::direct;
    if (direct && fail_direct_open != 0) core::raise_errno(fail_direct_open, path, "cannot open");
    if (before_open) before_open(path);
    if (++opened == 1 && refuse_first_open) core::raise_errno(EACCES, path, "cannot open");
    const auto real = simulate_direct ? source::Access::cached : access;
    return std::make_unique<FaultyHandle>(*this, path, direct, files_.open(path, real));
  }

  std::vector<std::uint64_t> offsets() const {
    const std::scoped_lock lock(mutex_);
    return offsets_;
  }

  bool local = true;
  std::function<std::optional<std::uint64_t>(std::uint64_t, std::uint64_t)> cached =
      [](std::uint64_t, std::uint64_t bytes) { return bytes; };
  std::optional<bool> sampled_as_cached;  // all of it, or nothing
  int fail_direct_open = 0;               // an errno
  bool simulate_direct = false;           // on any filesystem, and strict about alignment
  int direct_reads_granted = std::numeric_limits<int>::max();
  bool refuse_first_open = false;
  std::uint64_t fail_at = ~std::uint64_t{0};
  std::size_t at_most = ~std::size_t{0};
  std::function<void(const std::string&)> before_open;
  std::function<void(std::uint64_t)> before_read;
  mutable std::atomic<int> opened{0};
  mutable std::atomic<int> direct_reads{0};

 private:
  class FaultyHandle final : public source::Handle {
   public:
    FaultyHandle(const FaultySource& source, std::string path, bool direct,
                 std::unique_ptr<source::Handle> real)
        : source_(source), path_(std::move(path)), direct_(direct), real_(std::move(real)) {}

    const core::FileIdentity& identity() const noexcept override { return real_->identity(); }

    bool is_local() const noexcept override { return source_.local; }

    std::optional<std::uint64_t> cached_bytes(std::uint64_t offset,
                                              std::uint64_t bytes) const override {
      return source_.cached(offset, bytes);
    }

    std::optional<std::uint64_t> sampled_cached_bytes(std::uint64_t,
                                                      std::uint64_t bytes) const override {
      if (!source_.sampled_as_cached) return {};
      return *source_.sampled_as_cached ? bytes : 0;
    }

    std::size_t read_some(std::uint64_t offset, std::span<std::byte> to) const override {
      source_.note(offset);
      const bool granted = !direct_ || ++source_.direct_reads <= source_.direct_reads_granted;
      if (!granted || (direct_ && !aligned(to, offset))) fail(EINVAL, offset);
      if (offset <= source_.fail_at && source_.fail_at < offset + to.size()) fail(EIO, offset);
      if (source_.before_read) source_.before_read(offset);
      return real_->read_some(offset, to.first(std::min(to.size(), source_.at_most)));
    }

   private:
    static bool aligned(std::span<std::byte> to, std::uint64_t offset) {
      const auto address = reinterpret_cast<std::uintptr_t>(to.data());
      return (address | to.size() | offset) % core::page_bytes == 0;
    }

    [[noreturn]] void fail(int code, std::uint64_t offset) const {
      core::raise_errno(code, path_, "cannot read", offset);
    }

    const FaultySource& source_;
    const std::string path_;
    const bool direct_;
    const std::unique_ptr<source::Handle> real_;
  };

  void note(std::uint64_t offset) const {
    const std::scoped_lock lock(mutex_);
    offsets_.push_back(offset);
  }

  mutable std::mutex mutex_;
  mutable std::vector<std::uint64_t> offsets_;
};

bool file_is_direct(const std::string& path) {
  try {
    source::files().open(path, source::Access::direct);
    return true;
  } catch (const IoError&) {
    return false;
  }
}

constexpr std::uint64_t chunk = 16 << 10;
constexpr std::uint64_t file_size = 100'000;
constexpr bool may_leave = true;

/// One sample file, one reader on a faulty source.
struct Bench {
  explicit Bench(DirectIo direct = DirectIo::off, unsigned threads = 3)
      : options{IoEngine::posix, direct, threads, chunk} {}

  io::BatchStatus read_all() { return read({file}, {{0, 0, file.size, memory.data()}}); }

  io::BatchStatus read(std::vector<FileInfo> files, const std::vector<io::ReadRange>& ranges) {
    reader = io::make_reader(options, source, std::move(files), staging);
    return finish(ranges);
  }

  /// All of the file, without faults.
  io::BatchStatus read_really() {
    reader = io::make_reader(options, source::files(), {file}, staging);
    return finish({{0, 0, file.size, memory.data()}});
  }

  io::BatchStatus finish(const std::vector<io::ReadRange>& ranges) {
    reader->submit(ranges);
    io::BatchStatus status;
    while (!status.done) status = reader->poll(0, std::chrono::seconds(1));
    return status;
  }

  bool intact() const { return testing::is_sample(memory.span(), 0, 0); }

  ScratchDirectory directory;
  FileInfo file = testing::write_sample(directory.file("a"), 0, file_size);
  AlignedMemory memory{file_size};
  io::ReaderOptions options;
  FaultySource source;
  testing::DirectStaging staging;
  std::unique_ptr<io::Reader> reader;
};

}  // namespace

TEST_CASE("pieces tile their ranges in file order on aligned boundaries", "[io]") {
  std::vector<std::byte> memory(80'000);
  std::byte* const base = memory.data();
  const std::vector<io::ReadRange> ranges{{1, 100, 50'000, base},
                                          {0, 8'192, 10'000, base + 60'000}};
  const std::vector<io::Piece> pieces = io::split_for(4, ranges, 20'000);
  std::map<std::uint32_t, std::uint64_t> next{{0, 8'192}, {1, 100}};
  std::uint32_t file = 0;
  for (const io::Piece& piece : pieces) {
    CHECK(piece.file >= file);
    file = piece.file;
    CHECK(piece.offset == next[file]);
    const bool begins_range = piece.offset == 100 || piece.offset == 8'192;
    CHECK((begins_range || piece.offset % core::page_bytes == 0));
    CHECK(piece.bytes > 0);
    CHECK(piece.bytes <= 20'000);
    CHECK(piece.destination - base ==
          static_cast<std::ptrdiff_t>(file == 1 ? piece.offset - 100 : piece.offset + 51'808));
    next[file] += piece.bytes;
  }
  CHECK(next[0] == 18'192);
  CHECK(next[1] == 50'100);
}

TEST_CASE("one large range is work for all threads", "[io]") {
  std::vector<std::byte> memory(4 << 20);
  const io::ReadRange range{0, 0, memory.size(), memory.data()};
  CHECK(io::split_for(4, {&range, 1}, 64 << 20).size() == 4);
  CHECK(io::split_for(1, {&range, 1}, 64 << 20).size() == 1);
  CHECK(io::split_for(1, {&range, 1}, 1 << 20).size() == 4);
  CHECK(io::split_for(1000, {&range, 1}, 64 << 20).size() == 16);  // not in tiny pieces
}

TEST_CASE("what has a price for each read is cut at the multiples of a chunk", "[io]") {
  std::vector<std::byte> memory(100'000);
  const io::ReadRange range{0, 12'345, memory.size(), memory.data()};
  std::uint64_t next = 12'345;
  for (const io::Piece& piece : io::split_at_chunks({&range, 1}, 10'000)) {
    CHECK(piece.offset == next);
    CHECK((next == 12'345 || next % 10'000 == 0));
    CHECK(piece.destination == memory.data() + (piece.offset - 12'345));
    next += piece.bytes;
    CHECK((next == 112'345 || next % 10'000 == 0));
  }
  CHECK(next == 112'345);
}

TEST_CASE("options out of range are refused", "[io]") {
  testing::DirectStaging staging;
  CHECK_THROWS_AS(
      io::make_reader({IoEngine::automatic, DirectIo::off, 0, chunk}, source::files(), {}, staging),
      ConfigError);
  CHECK_THROWS_AS(
      io::make_reader({IoEngine::automatic, DirectIo::off, 1, 4095}, source::files(), {}, staging),
      ConfigError);
  CHECK(io::make_reader({}, source::files(), {}, staging)->path().engine == "posix");
}

TEST_CASE("short reads go unnoticed", "[io]") {
  const auto direct = GENERATE(DirectIo::off, DirectIo::on);
  Bench bench(direct);
  bench.source.at_most = GENERATE(std::size_t{777}, std::size_t{4096}, std::size_t{5000});
  const io::BatchStatus status = bench.read_all();
  CHECK_FALSE(status.error);
  CHECK(status.bytes == file_size);
  CHECK(bench.intact());
}

TEST_CASE("a read error names file, offset and errno, and the rest is read", "[io]") {
  const auto direct = GENERATE(DirectIo::off, DirectIo::on);
  Bench bench(direct);
  bench.source.fail_at = 40'000;
  const io::BatchStatus status = bench.read_all();
  REQUIRE(status.error);
  CHECK(status.error->kind == ErrorKind::io);
  CHECK(status.error->code == EIO);
  CHECK(status.error->file == bench.file.path);
  CHECK(status.error->offset == 2 * chunk);
  CHECK(status.error->cause == "cannot read: Input/output error");
  CHECK(status.bytes == file_size - chunk);
  CHECK(testing::is_sample(bench.memory.span().subspan(3 * chunk), 0, 3 * chunk));
}

TEST_CASE("the reported error is the one of the lowest offset", "[io]") {
  Bench bench;
  bench.source.before_read = [&](std::uint64_t offset) {
    if (offset == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  std::filesystem::resize_file(bench.file.path, 0);
  bench.file = testing::describe_file(bench.file.path);
  bench.file.size = 0;
  bench.reader = io::make_reader(bench.options, bench.source, {bench.file}, bench.staging);
  const io::ReadRange range{0, 0, file_size, bench.memory.data()};
  bench.reader->submit({&range, 1});
  io::BatchStatus status;
  while (!status.done) status = bench.reader->poll(0, std::chrono::seconds(1));
  REQUIRE(status.error);
  CHECK(status.error->cause == "file ended early");
  CHECK(status.error->offset == 0);
}

TEST_CASE("a file that shrinks, grows or is replaced while being read is an error", "[io]") {
  Bench bench(DirectIo::off, 1);
  const std::string path = bench.file.path;
  std::function<void()> change;
  SECTION("shrinks") {
    change = [&] { std::filesystem::resize_file(path, 50'000); };
  }
  SECTION("is overwritten") {
    change = [&] { std::fstream(path, std::ios::in | std::ios::out).put('x'); };
  }
  SECTION("is replaced") {
    change = [&] {
      testing::write_sample(path + ".new", 1, file_size);
      std::filesystem::rename(path + ".new", path);
    };
  }
  SECTION("is removed") {
    change = [&] { std::filesystem::remove(path); };
  }
  bench.source.before_read = [&](std::uint64_t offset) {
    if (offset == 4 * chunk) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a tick of the file clock
      change();
    }
  };
  const io::BatchStatus status = bench.read_all();
  REQUIRE(status.error);
  CHECK(status.error->kind == ErrorKind::io);
  CHECK(status.error->file == path);
}

TEST_CASE("direct reads bypass the page cache, where the filesystem can", "[io]") {
  Bench bench(DirectIo::on);
  const io::BatchStatus status = bench.read_all();
  CHECK_FALSE(status.error);
  CHECK(bench.intact());
  const io::IoPath path = bench.reader->path();
  if (path.fallbacks.empty()) {
    CHECK(path.mode == "direct");
    CHECK(path.direct_bytes == file_size);
    CHECK(bench.source.direct_reads == 7);
  } else {
    WARN("no direct I/O here: " << path.fallbacks.front());
  }
}

TEST_CASE("unaligned heads and tails, and files below a block, are read directly", "[io]") {
  Bench bench(DirectIo::on);
  bench.source.simulate_direct = true;
  struct Range {
    std::uint64_t offset;
    std::uint64_t bytes;
  };
  const auto [offset, bytes] =
      GENERATE(Range{0, 1}, Range{5, 100}, Range{4095, 1}, Range{4095, 2}, Range{5000, 70'001},
               Range{8192, 4096}, Range{file_size - 1, 1}, Range{file_size - 5000, 5000});
  const AlignedMemory memory(bytes, offset % core::page_bytes);
  const io::BatchStatus status = bench.read({bench.file}, {{0, offset, bytes, memory.data()}});
  CHECK_FALSE(status.error);
  CHECK(testing::is_sample(memory.span(), 0, offset));
  CHECK(bench.source.offsets().size() == static_cast<std::size_t>(bench.source.direct_reads));
  const io::IoPath path = bench.reader->path();
  CHECK(path.mode == "direct");
  CHECK(path.direct_bytes == bytes);
  CHECK(path.buffered_bytes == 0);
  CHECK(path.fallbacks.empty());
}

TEST_CASE("whatever is read buffered instead of directly is accounted for", "[io]") {
  Bench bench(DirectIo::on, 1);
  bench.source.simulate_direct = true;
  std::size_t shift = 0;
  std::string reason;
  std::uint64_t buffered = file_size;
  SECTION("refused after two reads") {
    bench.source.direct_reads_granted = 2;
    buffered = file_size - 2 * chunk;
    reason = " read: Invalid argument";
  }
  SECTION("a destination that does not fit") {
    shift = 1;
    buffered = file_size - file_size % core::page_bytes;  // whole blocks
    reason = " destination not aligned";
  }
  SECTION("reads that stop within a block") {
    bench.source.at_most = 1000;
    buffered = file_size - 7 * 1000;
    reason = " a direct read returned fewer bytes than requested";
  }
  const AlignedMemory memory(file_size, shift);
  CHECK_FALSE(bench.read({bench.file}, {{0, 0, file_size, memory.data()}}).error);
  CHECK(testing::is_sample(memory.span(), 0, 0));
  const io::IoPath path = bench.reader->path();
  CHECK(path.mode == "mixed");
  CHECK(path.buffered_bytes == buffered);
  CHECK(path.direct_bytes == file_size - buffered);
  CHECK(path.fallback_files == 1);
  REQUIRE(path.fallbacks.size() == 1);
  CHECK(path.fallbacks[0] == bench.file.path + ": direct I/O fell back to buffered:" + reason);
}

TEST_CASE("fallbacks of thousands of files are summarised", "[io]") {
  io::PathRecorder recorder;
  for (int file = 1000; file < 3000; ++file) {
    recorder.add("f" + std::to_string(file), {.buffered = 10, .obstacle = "open: refused"});
  }
  const io::IoPath path = recorder.path("posix");
  CHECK(path.mode == "buffered");
  CHECK(path.buffered_bytes == 20'000);
  CHECK(path.fallback_files == 2000);
  REQUIRE(path.fallbacks.size() == 1);
  CHECK(path.fallbacks[0] ==
        "f1000: direct I/O fell back to buffered: open: refused (and 1999 more files)");
}

TEST_CASE("what was not read straight into device memory is a fallback, even if that was chosen",
          "[io][gds]") {
  io::PathRecorder recorder;
  recorder.add("a", {.direct = 90, .device = 60, .choice = "cold"});
  recorder.add("b", {.direct = 10, .choice = "cold", .device_obstacle = "refused"});
  recorder.add("c", {.buffered = 5, .choice = "cached"});
  const io::IoPath path = recorder.path("posix");
  CHECK(path.engine == "gds+posix");
  CHECK(path.mode == "mixed");
  CHECK(path.direct_bytes == 100);
  CHECK(path.device_bytes == 60);
  CHECK(path.fallback_files == 1);
  CHECK(path.fallbacks == std::vector<std::string>{"b: gds fell back to posix: refused"});
}

TEST_CASE("each reason of fallbacks is told once", "[io][gds]") {
  io::PathRecorder recorder;
  for (int file = 10; file < 14; ++file) {
    const bool odd = file % 2 != 0;
    recorder.add("f" + std::to_string(file), {.direct = odd ? 8U : 0U,
                                              .buffered = odd ? 0U : 8U,
                                              .obstacle = odd ? "" : "open: refused",
                                              .device_obstacle = "refused"});
  }
  const io::IoPath path = recorder.path("posix");
  CHECK(path.fallback_files == 4);
  REQUIRE(path.fallbacks.size() == 2);
  CHECK(path.fallbacks[0] ==
        "f10: direct I/O fell back to buffered: open: refused (and 1 more file)");
  CHECK(path.fallbacks[1] == "f11: gds fell back to posix: refused (and 1 more file)");
}

TEST_CASE("a reader that has read nothing has no mode", "[io]") {
  Bench bench(DirectIo::on);
  bench.read({}, {});
  CHECK(bench.reader->path().mode.empty());
}

TEST_CASE("a refusal of direct I/O is a recorded fallback", "[io]") {
  Bench bench(DirectIo::on, 1);
  SECTION("at open") {
    bench.source.fail_direct_open = EINVAL;
  }
  SECTION("at read") {
    bench.source.direct_reads_granted = 0;
  }
  const io::BatchStatus status = bench.read_all();
  CHECK_FALSE(status.error);
  CHECK(bench.intact());
  CHECK(bench.source.direct_reads <= 1);
  const io::IoPath path = bench.reader->path();
  CHECK(path.mode == "buffered");
  REQUIRE(path.fallbacks.size() == 1);
  CHECK(path.fallbacks[0].find(bench.file.path) == 0);
  CHECK(path.fallbacks[0].find("Invalid argument") != std::string::npos);
}

TEST_CASE("where whole pages may be read, a range is one direct read", "[io]") {
  Bench bench(DirectIo::on, 1);
  bench.source.simulate_direct = true;
  const std::uint64_t offset = 5000;
  const std::uint64_t bytes = GENERATE(100U, 3192U, 9000U, file_size - 5000);
  const bool whole_pages = GENERATE(true, false);
  const std::size_t before = core::page_bytes + offset % core::page_bytes;
  AlignedMemory memory(core::align_up(before + bytes, core::page_bytes) + core::page_bytes);
  std::byte* const destination = memory.data() + before;
  const auto is_untouched = [](std::span<const std::byte> part) {
    return std::ranges::all_of(part, [](std::byte byte) { return byte == std::byte{0}; });
  };
  bench.options.chunk = 1 << 20;
  CHECK_FALSE(
      bench.read({bench.file}, {{0, offset, bytes, destination, false, whole_pages}}).error);
  CHECK(testing::is_sample({destination, bytes}, 0, offset));
  CHECK(bench.source.direct_reads == (whole_pages || bytes <= 3192 ? 1 : 3));
  const std::size_t after = memory.span().size() - before - bytes;
  CHECK(is_untouched(memory.span().first(whole_pages ? core::page_bytes : before)));
  CHECK(is_untouched(memory.span().last(whole_pages ? core::page_bytes : after)));
}

TEST_CASE("where whole pages may be read, short direct reads are continued", "[io]") {
  Bench bench(DirectIo::on, 1);
  bench.source.simulate_direct = true;
  bench.source.at_most = GENERATE(6000U, 8192U);
  const std::uint64_t offset = 5000;
  const std::size_t skip = offset % core::page_bytes;
  AlignedMemory memory(core::align_up(skip + file_size, core::page_bytes));
  std::byte* const destination = memory.data() + skip;
  const std::uint64_t bytes = file_size - offset;
  CHECK_FALSE(bench.read({bench.file}, {{0, offset, bytes, destination, false, true}}).error);
  CHECK(testing::is_sample({destination, bytes}, 0, offset));
  CHECK(bench.reader->path().direct_bytes == bytes);
}

TEST_CASE("whole pages of a destination are not those of the slot on the way to it", "[io]") {
  Bench bench(DirectIo::on, 1);
  bench.source.simulate_direct = true;
  testing::HeldStaging staging(2 * core::page_bytes, true);
  bench.reader = io::make_reader(bench.options, bench.source, {bench.file}, staging);
  const std::uint64_t bytes = core::page_bytes + 100;
  const io::ReadRange range{0, 0, bytes, bench.memory.data(), false, true};
  bench.reader->submit({&range, 1});
  while (!bench.reader->poll(0, std::chrono::milliseconds(1)).read) {
  }
  CHECK(bench.source.direct_reads == 2);
  while (!staging.holds()) {
  }
  staging.land();
  CHECK(bench.reader->poll(0, std::chrono::seconds(1)).done);
  CHECK(testing::is_sample(bench.memory.span().first(bytes), 0, 0));
}

TEST_CASE("a failure of a direct open that is no refusal is an error", "[io]") {
  Bench bench(GENERATE(DirectIo::on, DirectIo::automatic));
  bench.source.cached = [](std::uint64_t, std::uint64_t) { return 0; };
  bench.source.fail_direct_open = EMFILE;
  const io::BatchStatus status = bench.read_all();
  REQUIRE(status.error);
  CHECK(status.error->code == EMFILE);
  CHECK(status.error->file == bench.file.path);
}

TEST_CASE("buffered reads never ask for direct I/O and open a file once", "[io]") {
  Bench bench(GENERATE(DirectIo::off, DirectIo::automatic));
  CHECK_FALSE(bench.read_all().error);
  CHECK(bench.source.opened == 1);
  CHECK(bench.reader->path().mode == "buffered");
  CHECK(bench.reader->path().buffered_bytes == file_size);
  CHECK(bench.reader->path().fallbacks.empty());
}

TEST_CASE("automatic mode reads directly what the page cache does not have", "[io]") {
  Bench bench(DirectIo::automatic, 1);
  bench.source.simulate_direct = true;
  const auto nothing = [](std::uint64_t, std::uint64_t) { return 0; };
  io::IoChoices expected;
  std::string mode = "buffered";
  SECTION("nothing is cached") {
    bench.source.cached = nothing;
    mode = "direct";
    expected = {{{true, "cold"}, file_size}};
  }
  SECTION("all is cached") {
    expected = {{{false, "cached"}, file_size}};
  }
  SECTION("nobody knows") {
    bench.source.cached = [](std::uint64_t, std::uint64_t) { return std::nullopt; };
    expected = {{{false, "caching unknown"}, file_size}};
  }
  SECTION("most is not cached by an estimate") {
    bench.source.cached = [](std::uint64_t, std::uint64_t) { return std::nullopt; };
    bench.source.sampled_as_cached = false;
    mode = "direct";
    expected = {{{true, "likely cold"}, file_size}};
  }
  SECTION("all is cached by an estimate") {
    bench.source.cached = [](std::uint64_t, std::uint64_t) { return std::nullopt; };
    bench.source.sampled_as_cached = true;
    expected = {{{false, "likely cached"}, file_size}};
  }
  SECTION("on a network filesystem") {
    bench.source.cached = nothing;
    bench.source.local = false;
    expected = {{{false, "not a local filesystem"}, file_size}};
  }
  SECTION("direct reads are refused at open") {
    bench.source.cached = nothing;
    bench.source.fail_direct_open = EINVAL;
    expected = {{{false, "no direct I/O: open: Invalid argument"}, file_size}};
  }
  SECTION("direct reads are refused after two") {
    bench.source.cached = nothing;
    bench.source.direct_reads_granted = 2;
    mode = "mixed";
    expected = {{{true, "cold"}, 2 * chunk},
                {{false, "no direct I/O: read: Invalid argument"}, file_size - 2 * chunk}};
  }
  CHECK_FALSE(bench.read_all().error);
  CHECK(bench.intact());
  const io::IoPath path = bench.reader->path();
  CHECK(path.mode == mode);
  CHECK((path.choices == expected));
  CHECK(path.fallbacks.empty());
  CHECK(bench.source.opened == (mode == "buffered" ? 1 : 2));
}

TEST_CASE("automatic mode decides piece by piece, but on a megabyte at least", "[io]") {
  constexpr std::uint64_t mib = 1 << 20;
  Bench bench(DirectIo::automatic, 1);
  bench.source.simulate_direct = true;
  bench.options.chunk = mib;
  const FileInfo file = testing::write_sample(bench.directory.file("b"), 1, 5 * mib);
  const AlignedMemory memory(file.size);
  bench.source.cached = [](std::uint64_t offset, std::uint64_t bytes) {
    constexpr std::uint64_t all = 2 * mib + mib / 8;
    return std::min(bytes, all - std::min(all, offset));
  };
  constexpr std::uint64_t small = mib / 16;  // cached, unlike most of what follows
  CHECK_FALSE(bench
                  .read({file}, {{0, 0, 2 * mib, memory.data()},
                                 {0, 2 * mib, small, memory.data() + 2 * mib},
                                 {0, 3 * mib, 2 * mib, memory.data() + 3 * mib}})
                  .error);
  CHECK(testing::is_sample(memory.span().first(2 * mib + small), 1, 0));
  CHECK(testing::is_sample(memory.span().subspan(3 * mib), 1, 3 * mib));
  const io::IoPath path = bench.reader->path();
  CHECK(path.mode == "mixed");
  CHECK((path.choices ==
         io::IoChoices{{{false, "cached"}, 2 * mib}, {{true, "cold"}, 2 * mib + small}}));
}

TEST_CASE("what the page cache has may be left there", "[io]") {
  constexpr std::uint64_t mib = 1 << 20;
  const DirectIo mode = GENERATE(DirectIo::automatic, DirectIo::off);
  Bench bench(mode);
  bench.source.simulate_direct = true;
  bench.options.chunk = mib;
  const FileInfo file = testing::write_sample(bench.directory.file("b"), 1, 5 * mib);
  const AlignedMemory memory(file.size);
  const std::uint64_t cached = GENERATE(0U, 3U, 5U) * mib;
  bench.source.cached = [&](std::uint64_t offset, std::uint64_t bytes) {
    const std::uint64_t end = offset + bytes;
    return end <= cached ? bytes : bytes - (end - std::max(offset, cached)) / 8;  // most
  };
  const io::BatchStatus status = bench.read({file}, {{0, 0, file.size, memory.data(), may_leave}});
  CHECK_FALSE(status.error);
  CHECK(status.bytes == file.size);
  std::uint64_t left = 0;
  for (const io::LeftRange& range : status.left) {
    CHECK(range.offset == left);  // in order
    CHECK(range.destination == memory.data() + left);
    left += range.bytes;
    std::vector<std::byte> bytes(range.bytes - 7);
    read(range, 7, bytes);
    CHECK(testing::is_sample(bytes, 1, range.offset + 7));
    CHECK_NOTHROW(io::check_unchanged(range, bench.source));
  }
  CHECK(left == cached);
  CHECK(testing::is_sample(memory.span().subspan(left), 1, left));
  const io::IoPath path = bench.reader->path();
  CHECK(path.buffered_bytes + path.direct_bytes == file.size);
  CHECK(path.buffered_bytes >= left);
  for (const io::LeftRange& range : status.left) note_unread(range, 1);
  const io::IoPath less = bench.reader->path();
  CHECK(less.buffered_bytes == path.buffered_bytes - status.left.size());
  const std::pair<bool, std::string> reason{false, "cached"};
  if (left != 0 && mode == DirectIo::automatic)
    CHECK(less.choices.at(reason) == path.choices.at(reason) - status.left.size());
  if (left != file.size) return;
  for (const io::LeftRange& range : status.left) note_unread(range, range.bytes - 1);
  CHECK(bench.reader->path().choices.empty());
}

TEST_CASE("cached pages are not counted again for each small range", "[io]") {
  constexpr std::uint64_t mib = 1 << 20;
  Bench bench(DirectIo::automatic, 1);
  const FileInfo file = testing::write_sample(bench.directory.file("b"), 1, 2 * mib);
  const AlignedMemory memory(file.size);
  std::vector<io::ReadRange> ranges;
  for (std::uint64_t at = 0; at < file.size; at += mib / 32) {
    ranges.push_back({0, at, mib / 64, memory.data() + at, may_leave});
  }
  std::uint64_t counted = 0;
  bench.source.cached = [&](std::uint64_t, std::uint64_t bytes) {
    counted += bytes;
    return bytes;
  };
  CHECK(bench.read({file}, ranges).left.size() == ranges.size());
  CHECK(counted == file.size);
}

TEST_CASE("what was left does not keep many files open", "[io]") {
  Bench bench(DirectIo::automatic);
  constexpr std::uint32_t count = 80;  // more than are kept open
  constexpr std::uint64_t size = 10'000;
  std::vector<FileInfo> files;
  for (std::uint32_t i = 0; i < count; ++i) {
    files.push_back(testing::write_sample(bench.directory.file(std::to_string(i)), i, size));
  }
  const AlignedMemory memory(count * size);
  bench.source.cached = [](std::uint64_t, std::uint64_t bytes) { return bytes; };
  const std::ptrdiff_t descriptors = testing::open_descriptors();
  bench.reader = io::make_reader(bench.options, bench.source, files, bench.staging);
  const std::uint32_t per_batch = GENERATE(1U, 80U);
  for (std::uint32_t first = 0; first < count; first += per_batch) {
    std::vector<io::ReadRange> ranges;
    for (std::uint32_t i = first; i < first + per_batch; ++i) {
      ranges.push_back({i, 0, size, memory.data() + i * size, may_leave});
    }
    const io::BatchId batch = bench.reader->submit(ranges);
    io::BatchStatus status;
    while (!status.done) status = bench.reader->poll(batch, std::chrono::seconds(1));
    CHECK_FALSE(status.error);
    CHECK(status.bytes == per_batch * size);
    CHECK(status.left.size() == per_batch);  // in files that are closed, too
    CHECK(testing::open_descriptors() < descriptors + count);
    for (const io::LeftRange& range : status.left) {
      read(range, 0, {range.destination, range.bytes});
    }
    for (std::uint32_t i = first; i < first + per_batch; ++i) {
      CHECK(testing::is_sample(memory.span().subspan(i * size, size), i, 0));
    }
  }
}

TEST_CASE("a file that shrinks or is replaced after it was left there is an error", "[io]") {
  Bench bench(DirectIo::automatic);
  const io::BatchStatus status =
      bench.read({bench.file}, {{0, 0, file_size, bench.memory.data(), may_leave}});
  REQUIRE_FALSE(status.left.empty());
  std::filesystem::resize_file(bench.file.path, file_size / 2);
  const io::LeftRange& last = status.left.back();
  std::vector<std::byte> bytes(last.bytes);
  CHECK_THROWS_AS(read(last, 0, bytes), IoError);
  CHECK_THROWS_AS(io::check_unchanged(last, bench.source), IoError);
}

TEST_CASE("a file that is replaced after it was left and closed is an error", "[io]") {
  Bench bench(DirectIo::automatic);
  bench.source.cached = [](std::uint64_t, std::uint64_t bytes) { return bytes; };
  constexpr std::uint32_t count = 80;  // more than are kept open
  std::vector<FileInfo> files;
  std::vector<io::ReadRange> ranges;
  for (std::uint32_t i = 0; i < count; ++i) {
    files.push_back(testing::write_sample(bench.directory.file(std::to_string(i)), i, 1000));
    ranges.push_back({i, 0, 1000, bench.memory.data() + i * 1000, may_leave});
  }
  const io::BatchStatus status = bench.read(files, ranges);
  REQUIRE(status.left.size() == count);
  const std::string replaced = files[count / 2].path;
  std::filesystem::remove(replaced);
  testing::write_sample(replaced, count, 1000);
  std::vector<std::byte> bytes(1000);
  CHECK_THROWS_AS(read(status.left[count / 2], 0, bytes), IoError);
  CHECK_NOTHROW(read(status.left[0], 0, bytes));
  CHECK_NOTHROW(read(status.left[count - 1], 0, bytes));
}

TEST_CASE("what is only estimated to be cached is read ahead, not left", "[io]") {
  Bench bench(DirectIo::automatic);
  bench.source.cached = [](std::uint64_t, std::uint64_t) { return std::nullopt; };
  bench.source.sampled_as_cached = true;
  const io::BatchStatus status =
      bench.read({bench.file}, {{0, 0, file_size, bench.memory.data(), may_leave}});
  CHECK(status.left.empty());
  CHECK(bench.intact());
}

TEST_CASE("without leave, all is read", "[io]") {
  Bench bench(DirectIo::automatic);
  const io::BatchStatus status = bench.read_all();
  CHECK(status.left.empty());
  CHECK(bench.intact());
}

TEST_CASE("a cold file is not in the page cache after it was read", "[io]") {
  Bench bench(DirectIo::automatic);
  const core::PosixFile file = core::PosixFile::open(bench.file.path);
  file.sync();
  core::drop_cached(file.descriptor(), 0, file_size);
  if (core::cached_bytes(file.descriptor(), 0, file_size) != 0 ||
      !file_is_direct(bench.file.path)) {
    WARN("skipped: the filesystem of " << bench.file.path << " keeps its pages");
    return;
  }
  bench.read_really();
  CHECK(bench.intact());
  CHECK(bench.reader->path().mode == "direct");
  CHECK(core::cached_bytes(file.descriptor(), 0, file_size) == 0);
}

TEST_CASE("a cold file of somebody else is read directly", "[io]") {
  if (!testing::is_root()) {
    WARN("skipped: only root can become somebody else");
    return;
  }
  Bench bench(DirectIo::automatic);
  testing::permit_others_to_read(std::filesystem::path(bench.file.path).parent_path());
  const auto sampled =
      source::files().open(bench.file.path, source::Access::cached)->sampled_cached_bytes(0, 1);
  if (!testing::make_cold(bench.file.path) || !file_is_direct(bench.file.path) || !sampled) {
    WARN("skipped: the filesystem of " << bench.file.path
                                       << " keeps its pages, or cannot read without waiting");
    return;
  }
  const auto is_read_directly = [&bench] {
    testing::become_nobody();
    bench.read_really();
    const io::IoPath path = bench.reader->path();
    const bool chosen =
        path.choices.contains({true, "likely cold"}) || path.choices.contains({true, "cold"});
    ::_exit(bench.intact() && chosen ? EXIT_SUCCESS : EXIT_FAILURE);
  };
  CHECK(testing::holds_when_cold(bench.file.path, [&is_read_directly] {
    return testing::in_ending_process(is_read_directly);
  }));
}

TEST_CASE("what the caller chose is no choice", "[io]") {
  Bench bench(GENERATE(DirectIo::on, DirectIo::off));
  bench.read_all();
  CHECK(bench.reader->path().choices.empty());
}

TEST_CASE("a file that is slow to open delays no reader of another", "[io]") {
  Bench bench(DirectIo::off, 2);
  const FileInfo other = testing::write_sample(bench.directory.file("b"), 1, 4096);
  std::promise<void> other_opened;
  auto waits = other_opened.get_future();
  bool in_time = false;
  bench.source.before_open = [&](const std::string& path) {
    if (path == other.path) return other_opened.set_value();
    in_time = waits.wait_for(std::chrono::seconds(5)) == std::future_status::ready;
  };
  const io::BatchStatus status =
      bench.read({bench.file, other},
                 {{0, 0, 4096, bench.memory.data()}, {1, 0, 4096, bench.memory.data() + 4096}});
  CHECK_FALSE(status.error);
  CHECK(in_time);
  CHECK(testing::is_sample(bench.memory.span().first(4096), 0, 0));
  CHECK(testing::is_sample(bench.memory.span().subspan(4096, 4096), 1, 0));
}

TEST_CASE("a file that cannot be opened is an error for all that wait for it", "[io]") {
  Bench bench(DirectIo::off, 3);
  bench.source.refuse_first_open = true;
  bench.source.before_open = [](const std::string&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // for the others to come
  };
  const io::BatchStatus status = bench.read_all();
  REQUIRE(status.error);
  CHECK(status.error->code == EACCES);
  CHECK(status.error->cause == "cannot open: Permission denied");
  CHECK(status.bytes == 0);
  CHECK(bench.source.opened == 1);
}

TEST_CASE("one thread reads a file in order of offset", "[io]") {
  Bench bench(DirectIo::off, 1);
  bench.read_all();
  const std::vector<std::uint64_t> offsets = bench.source.offsets();
  CHECK(offsets.size() == 7);
  CHECK(std::ranges::is_sorted(offsets));
}

TEST_CASE("busy time counts overlapping reads once", "[io]") {
  Bench bench(DirectIo::off, 4);
  bench.source.before_read = [](std::uint64_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };
  const core::Clock::time_point start = core::Clock::now();
  bench.read_all();  // 7 pieces on 4 threads: two rounds
  const double elapsed = core::seconds_since(start);
  CHECK(bench.reader->busy_seconds() >= 0.039);
  CHECK(bench.reader->busy_seconds() <= elapsed);
}
