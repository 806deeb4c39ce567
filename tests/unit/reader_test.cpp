// io: cutting into pieces, faults at the system calls, direct I/O and its fallbacks.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <fstream>
#include <future>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "core/deadline.hpp"
#include "io/path_recorder.hpp"
#include "io/pieces.hpp"
#include "io/posix_reader.hpp"
#include "support/catch.hpp"
#include "support/sample_file.hpp"
#include "support/test_staging.hpp"

using namespace safeshuffle;
using safeshuffle::testing::AlignedMemory;
using safeshuffle::testing::ScratchDirectory;

namespace {

/// Calls that fail as told.
class FaultySyscalls final : public io::Syscalls {
 public:
  int open(const std::string& path, int flags) override {
    const bool direct = (flags & O_DIRECT) != 0;
    if (direct && refuse_direct_open) return fail<int>(EINVAL);
    if (before_open) before_open(path);
    if (++opened == 1 && refuse_first_open) return fail<int>(EACCES);
    if (!simulate_direct) return Syscalls::open(path, flags);
    const int descriptor = Syscalls::open(path, flags & ~O_DIRECT);
    note_direct(descriptor, direct);
    return descriptor;
  }

  ssize_t pread(int descriptor, std::byte* buffer, std::size_t bytes, off_t offset) override {
    const bool direct = is_direct(descriptor);
    const int count = direct ? ++direct_reads : 0;
    note(offset);
    if (direct && count > direct_reads_granted) return fail<ssize_t>(EINVAL);
    if (direct && !aligned(buffer, bytes, offset)) return fail<ssize_t>(EINVAL);
    if (interrupt && ++calls % 2 == 0) return fail<ssize_t>(EINTR);
    if (offset <= fail_at && fail_at < offset + static_cast<off_t>(bytes))
      return fail<ssize_t>(EIO);
    if (before_read) before_read(offset);
    return Syscalls::pread(descriptor, buffer, std::min(bytes, at_most), offset);
  }

  std::vector<off_t> offsets() {
    const std::scoped_lock lock(mutex_);
    return offsets_;
  }

  bool refuse_direct_open = false;
  bool simulate_direct = false;  // on any filesystem, and strict about alignment
  int direct_reads_granted = std::numeric_limits<int>::max();
  bool refuse_first_open = false;
  bool interrupt = false;
  off_t fail_at = -1;
  std::size_t at_most = ~std::size_t{0};
  std::function<void(const std::string&)> before_open;
  std::function<void(off_t)> before_read;
  std::atomic<int> calls{0};
  std::atomic<int> opened{0};
  std::atomic<int> direct_reads{0};

 private:
  template <typename Result>
  static Result fail(int code) {
    errno = code;
    return -1;
  }

  static bool aligned(const std::byte* buffer, std::size_t bytes, off_t offset) {
    const auto address = reinterpret_cast<std::uintptr_t>(buffer);
    return (address | bytes | static_cast<std::uint64_t>(offset)) % io::direct_alignment == 0;
  }

  void note_direct(int descriptor, bool direct) {
    const std::scoped_lock lock(mutex_);
    direct ? void(direct_.insert(descriptor)) : void(direct_.erase(descriptor));
  }

  bool is_direct(int descriptor) {
    const std::scoped_lock lock(mutex_);
    return direct_.contains(descriptor) || (::fcntl(descriptor, F_GETFL) & O_DIRECT) != 0;
  }

  void note(off_t offset) {
    const std::scoped_lock lock(mutex_);
    offsets_.push_back(offset);
  }

  std::mutex mutex_;
  std::vector<off_t> offsets_;
  std::set<int> direct_;  // descriptors
};

constexpr std::uint64_t chunk = 16 << 10;
constexpr std::uint64_t file_size = 100'000;

/// One sample file, one reader on faulty calls.
struct Bench {
  explicit Bench(DirectIo direct = DirectIo::off, unsigned threads = 3)
      : options{IoEngine::posix, direct, threads, chunk} {}

  io::BatchStatus read_all() { return read({file}, {{0, 0, file.size, memory.data()}}); }

  io::BatchStatus read(std::vector<FileInfo> files, const std::vector<io::ReadRange>& ranges) {
    reader = io::make_posix_reader(options, std::move(files), staging, calls);
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
  FaultySyscalls calls;
  testing::DirectStaging staging;
  std::unique_ptr<io::Reader> reader;
};

}  // namespace

TEST_CASE("pieces tile their ranges in file order on aligned boundaries", "[io]") {
  std::vector<std::byte> memory(80'000);
  std::byte* const base = memory.data();
  const std::vector<io::ReadRange> ranges{{1, 100, 50'000, base},
                                          {0, 8'192, 10'000, base + 60'000}};
  const std::vector<io::Piece> pieces = io::cut(ranges, 20'000, 4);
  std::map<std::uint32_t, std::uint64_t> next{{0, 8'192}, {1, 100}};
  std::uint32_t file = 0;
  for (const io::Piece& piece : pieces) {
    CHECK(piece.file >= file);
    file = piece.file;
    CHECK(piece.offset == next[file]);
    const bool begins_range = piece.offset == 100 || piece.offset == 8'192;
    CHECK((begins_range || piece.offset % io::direct_alignment == 0));
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
  CHECK(io::cut({&range, 1}, 64 << 20, 4).size() == 4);
  CHECK(io::cut({&range, 1}, 64 << 20, 1).size() == 1);
  CHECK(io::cut({&range, 1}, 1 << 20, 1).size() == 4);
  CHECK(io::cut({&range, 1}, 64 << 20, 1000).size() == 16);  // not in tiny pieces
}

TEST_CASE("options out of range are refused", "[io]") {
  testing::DirectStaging staging;
  CHECK_THROWS_AS(io::make_reader({IoEngine::automatic, DirectIo::off, 0, chunk}, {}, staging),
                  ConfigError);
  CHECK_THROWS_AS(io::make_reader({IoEngine::automatic, DirectIo::off, 1, 4095}, {}, staging),
                  ConfigError);
  CHECK(io::make_reader({}, {}, staging)->path().engine == "posix");
}

TEST_CASE("short reads and interrupted calls go unnoticed", "[io]") {
  const auto direct = GENERATE(DirectIo::off, DirectIo::on);
  Bench bench(direct);
  bench.calls.at_most = GENERATE(std::size_t{777}, std::size_t{4096}, std::size_t{5000});
  bench.calls.interrupt = true;
  const io::BatchStatus status = bench.read_all();
  CHECK_FALSE(status.error);
  CHECK(status.bytes == file_size);
  CHECK(bench.intact());
}

TEST_CASE("a read error names file, offset and errno, and the rest is read", "[io]") {
  const auto direct = GENERATE(DirectIo::off, DirectIo::on);
  Bench bench(direct);
  bench.calls.fail_at = 40'000;
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
  bench.calls.before_read = [&](off_t offset) {
    if (offset == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  std::filesystem::resize_file(bench.file.path, 0);
  bench.file = testing::describe_file(bench.file.path);
  bench.file.size = 0;
  bench.reader = io::make_posix_reader(bench.options, {bench.file}, bench.staging, bench.calls);
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
  bench.calls.before_read = [&](off_t offset) {
    if (offset == 4 * static_cast<off_t>(chunk)) {
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
    CHECK(bench.calls.direct_reads == 7);
  } else {
    WARN("no direct I/O here: " << path.fallbacks.front());
  }
}

TEST_CASE("unaligned heads and tails, and files below a block, are read directly", "[io]") {
  Bench bench(DirectIo::on);
  bench.calls.simulate_direct = true;
  struct Range {
    std::uint64_t offset;
    std::uint64_t bytes;
  };
  const auto [offset, bytes] =
      GENERATE(Range{0, 1}, Range{5, 100}, Range{4095, 1}, Range{4095, 2}, Range{5000, 70'001},
               Range{8192, 4096}, Range{file_size - 1, 1}, Range{file_size - 5000, 5000});
  const AlignedMemory memory(bytes, offset % io::direct_alignment);
  const io::BatchStatus status = bench.read({bench.file}, {{0, offset, bytes, memory.data()}});
  CHECK_FALSE(status.error);
  CHECK(testing::is_sample(memory.span(), 0, offset));
  CHECK(bench.calls.offsets().size() == static_cast<std::size_t>(bench.calls.direct_reads));
  const io::IoPath path = bench.reader->path();
  CHECK(path.mode == "direct");
  CHECK(path.direct_bytes == bytes);
  CHECK(path.buffered_bytes == 0);
  CHECK(path.fallbacks.empty());
}

TEST_CASE("whatever is read buffered instead of directly is accounted for", "[io]") {
  Bench bench(DirectIo::on, 1);
  bench.calls.simulate_direct = true;
  std::size_t shift = 0;
  std::string reason;
  std::uint64_t buffered = file_size;
  SECTION("refused after two reads") {
    bench.calls.direct_reads_granted = 2;
    buffered = file_size - 2 * chunk;
    reason = " for 67232 of 100000 bytes: read: Invalid argument";
  }
  SECTION("a destination that does not fit") {
    shift = 1;
    buffered = file_size - file_size % io::direct_alignment;  // whole blocks
    reason = " for 98304 of 100000 bytes: destination not aligned";
  }
  SECTION("reads that stop within a block") {
    bench.calls.at_most = 1000;
    buffered = file_size - 7 * 1000;
    reason = " for 93000 of 100000 bytes: a direct read stopped short";
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
  CHECK(path.fallbacks[0] == bench.file.path + ": direct I/O fell back to buffered" + reason);
}

TEST_CASE("fallbacks of thousands of files are summarised", "[io]") {
  io::PathRecorder recorder;
  for (int file = 1000; file < 3000; ++file) {
    recorder.fallback("f" + std::to_string(file), "open: refused");
    recorder.buffered_read("f" + std::to_string(file), 10);
  }
  const io::IoPath path = recorder.path("posix");
  CHECK(path.mode == "buffered");
  CHECK(path.buffered_bytes == 20'000);
  CHECK(path.fallback_files == 2000);
  REQUIRE(path.fallbacks.size() == 9);
  CHECK(path.fallbacks[0] == "f1000: direct I/O fell back to buffered: open: refused");
  CHECK(path.fallbacks[8] == "1992 more files: direct I/O fell back to buffered");
}

TEST_CASE("a reader that has read nothing has no mode", "[io]") {
  Bench bench(DirectIo::on);
  bench.read({}, {});
  CHECK(bench.reader->path().mode.empty());
}

TEST_CASE("a refusal of direct I/O is a recorded fallback", "[io]") {
  Bench bench(DirectIo::on, 1);
  SECTION("at open") {
    bench.calls.refuse_direct_open = true;
  }
  SECTION("at read") {
    bench.calls.direct_reads_granted = 0;
  }
  const io::BatchStatus status = bench.read_all();
  CHECK_FALSE(status.error);
  CHECK(bench.intact());
  CHECK(bench.calls.direct_reads <= 1);
  const io::IoPath path = bench.reader->path();
  CHECK(path.mode == "buffered");
  REQUIRE(path.fallbacks.size() == 1);
  CHECK(path.fallbacks[0].find(bench.file.path) == 0);
  CHECK(path.fallbacks[0].find("Invalid argument") != std::string::npos);
}

TEST_CASE("buffered reads never ask for direct I/O and open a file once", "[io]") {
  Bench bench(GENERATE(DirectIo::off, DirectIo::automatic));
  CHECK_FALSE(bench.read_all().error);
  CHECK(bench.calls.opened == 1);
  CHECK(bench.reader->path().mode == "buffered");
  CHECK(bench.reader->path().buffered_bytes == file_size);
  CHECK(bench.reader->path().fallbacks.empty());
}

TEST_CASE("a file that is slow to open delays no reader of another", "[io]") {
  Bench bench(DirectIo::off, 2);
  const FileInfo other = testing::write_sample(bench.directory.file("b"), 1, 4096);
  std::promise<void> other_opened;
  auto waits = other_opened.get_future();
  bool in_time = false;
  bench.calls.before_open = [&](const std::string& path) {
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
  bench.calls.refuse_first_open = true;
  bench.calls.before_open = [](const std::string&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // for the others to come
  };
  const io::BatchStatus status = bench.read_all();
  REQUIRE(status.error);
  CHECK(status.error->code == EACCES);
  CHECK(status.error->cause == "cannot open: Permission denied");
  CHECK(status.bytes == 0);
  CHECK(bench.calls.opened == 1);
}

TEST_CASE("one thread reads a file in order of offset", "[io]") {
  Bench bench(DirectIo::off, 1);
  bench.read_all();
  const std::vector<off_t> offsets = bench.calls.offsets();
  CHECK(offsets.size() == 7);
  CHECK(std::ranges::is_sorted(offsets));
}

TEST_CASE("busy time counts overlapping reads once", "[io]") {
  Bench bench(DirectIo::off, 4);
  bench.calls.before_read = [](off_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };
  const core::Clock::time_point start = core::Clock::now();
  bench.read_all();  // 7 pieces on 4 threads: two rounds
  const double elapsed = core::seconds_since(start);
  CHECK(bench.reader->busy_seconds() >= 0.039);
  CHECK(bench.reader->busy_seconds() <= elapsed);
}
