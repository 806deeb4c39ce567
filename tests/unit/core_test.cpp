// core: arithmetic, dtypes, errors, files, threads.
#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include "safeshuffle/dtype.hpp"
#include "safeshuffle/error.hpp"

#include "core/arithmetic.hpp"
#include "core/bounded_call.hpp"
#include "core/cpus.hpp"
#include "core/deadline.hpp"
#include "core/detached_work.hpp"
#include "core/posix_file.hpp"
#include "core/random.hpp"
#include "core/source_line.hpp"
#include "core/text.hpp"
#include "core/thread.hpp"
#include "core/thread_pool.hpp"
#include "support/catch.hpp"
#include "support/failure.hpp"
#include "support/sanitizers.hpp"
#include "support/temporary_directory.hpp"
#include "support/thread_limit.hpp"

using namespace safeshuffle;

namespace {

std::string inner(core::SourceLine where = core::SourceLine::here()) {
  return core::text_of(where);
}
std::string outer(core::SourceLine where = core::SourceLine::here()) {
  return inner(where);
}

}  // namespace

TEST_CASE("checked arithmetic refuses to wrap", "[core]") {
  constexpr std::uint64_t max = ~std::uint64_t{0};
  CHECK(core::checked_mul(max, 1) == max);
  CHECK_FALSE(core::checked_mul(max, 2));
  CHECK(core::checked_add(max, 0) == max);
  CHECK_FALSE(core::checked_add(max, 1));
  CHECK(core::in_bounds(3, 4, 7));
  CHECK_FALSE(core::in_bounds(3, 5, 7));
  CHECK_FALSE(core::in_bounds(8, max, 7));
  CHECK(core::ceil_div(max, 2) == max / 2 + 1);
}

TEST_CASE("dtype names round-trip and widths are the format's", "[core]") {
  for (int i = 0; i <= static_cast<int>(DType::U64); ++i) {
    const auto dtype = static_cast<DType>(i);
    CHECK(parse_dtype(name(dtype)) == dtype);
  }
  CHECK_FALSE(parse_dtype("bf16"));
  CHECK(bits(DType::F4) == 4);
  CHECK(bits(DType::F6_E3M2) == 6);
  CHECK(bits(DType::F8_E5M2FNUZ) == 8);
  CHECK(bits(DType::BF16) == 16);
  CHECK(bits(DType::F32) == 32);
  CHECK(bits(DType::C64) == 64);
}

TEST_CASE("a dtype policy touches F16, BF16 and F32 only", "[core]") {
  CHECK(converted(DType::BF16, DTypePolicy::f16) == DType::F16);
  CHECK(converted(DType::F32, DTypePolicy::bf16) == DType::BF16);
  CHECK(converted(DType::F16, DTypePolicy::keep) == DType::F16);
  for (const DType other : {DType::F64, DType::I32, DType::BOOL, DType::F8_E4M3, DType::F4}) {
    CHECK(converted(other, DTypePolicy::f16) == other);
  }
}

TEST_CASE("raise throws the type of the kind, with everything known", "[core]") {
  const ErrorRecord record{.kind = ErrorKind::io,
                           .code = 5,
                           .rank = 3,
                           .file = "a.safetensors",
                           .tensor = "w",
                           .offset = 17,
                           .cause = "cannot read"};
  try {
    raise(record);
    FAIL("no exception");
  } catch (const IoError& error) {
    CHECK(error.record().code == 5);
    CHECK(std::string(error.what()) == "rank 3: a.safetensors: tensor 'w': byte 17: cannot read");
  }
}

TEST_CASE("a message stays one line whatever a file holds", "[core]") {
  const ErrorRecord record{
      .file = "f\n", .tensor = "a\nb\x1b", .cause = "unknown dtype 'F\n\x1b[2J'"};
  CHECK(describe(record) == "f?: tensor 'a?b?': unknown dtype 'F??[2J'");
}

TEST_CASE("a message stays short whatever a tensor is called", "[core]") {
  const ErrorRecord record{.tensor = std::string(1000000, 'n'), .cause = "bad"};
  CHECK(describe(record) == "tensor '" + std::string(300, 'n') + "...': bad");
}

TEST_CASE("text is shortened between UTF-8 characters", "[core]") {
  const std::string text = "a\xc3\xa9\xf0\x9f\x98\x80";
  CHECK(core::shortened(text, 7) == text);
  CHECK(core::shortened(text, 6) == "a\xc3\xa9...");
  CHECK(core::shortened(text, 2) == "a...");
  CHECK(core::shortened("\x80\x80", 1) == "...");
}

TEST_CASE("a position counts lines and UTF-8 characters from 1", "[core]") {
  const std::string text = "ab\n\néx";
  CHECK(core::line_and_column(text, 0) == "line 1, column 1");
  CHECK(core::line_and_column(text, 2) == "line 1, column 3");
  CHECK(core::line_and_column(text, 3) == "line 2, column 1");
  CHECK(core::line_and_column(text, 6) == "line 3, column 2");
  CHECK(core::line_and_column(text, text.size()) == "line 3, column 3");
  CHECK(core::line_and_column("", 0) == "line 1, column 1");
}

TEST_CASE("parallel_for runs every index once, also with more indices than workers", "[core]") {
  core::ThreadPool pool(3);
  std::vector<std::atomic<int>> hits(1000);
  pool.parallel_for(hits.size(), [&](std::size_t i) { ++hits[i]; });
  for (const auto& hit : hits) CHECK(hit == 1);
  pool.parallel_for(0, [](std::size_t) { FAIL("no index"); });
}

TEST_CASE("deadlines expire, however long they are not at once", "[core]") {
  CHECK(core::Deadline(std::chrono::milliseconds(0)).expired());
  for (const auto limit : {std::chrono::milliseconds(10'000), std::chrono::milliseconds::max()}) {
    core::Deadline deadline(limit);
    deadline.restart();
    CHECK_FALSE(deadline.expired());
    CHECK(deadline.remaining() > std::chrono::seconds(5));
  }
}

TEST_CASE("a call that does not come back is left to itself", "[core]") {
  CHECK(core::returns_within(std::chrono::seconds(30), [] {}));
  CHECK(core::returns_within(std::chrono::seconds(30), [] { throw std::runtime_error("lost"); }));
  CHECK_FALSE(core::has_detached_work());
  const auto release = std::make_shared<std::promise<void>>();
  const auto over = std::make_shared<std::promise<void>>();
  CHECK_FALSE(core::returns_within(std::chrono::milliseconds(20), [release, over] {
    release->get_future().wait();
    over->set_value();
  }));
  CHECK(core::has_detached_work());
  release->set_value();
  over->get_future().wait();
  core::Deadline soon(std::chrono::seconds(30));
  while (core::has_detached_work() && !soon.expired()) std::this_thread::yield();
  CHECK_FALSE(core::has_detached_work());
}

TEST_CASE("a file without the bytes asked for says where it ends", "[core]") {
  const testing::TemporaryDirectory directory;
  const auto file = core::PosixFile::open(directory.write("x", "1234"));
  std::array<std::byte, 4> bytes{};
  const ErrorRecord record = testing::failure<IoError>([&] { file.read(1, bytes); });
  CHECK(record.file == directory / "x");
  CHECK(record.offset == 4);
  CHECK(record.cause == "file ended early");
}

TEST_CASE("a thread that the system has no room for is a MemoryError", "[core]") {
  const testing::NoMoreThreads limit;
  const auto refused = [](const std::function<void()>& start) {
    return testing::failure<MemoryError>(start).cause;
  };
  const std::string cause = "cannot start a thread: Resource temporarily unavailable";
  CHECK(refused([] { core::start_thread([] {}).join(); }) == cause);
  CHECK(refused([] { core::ThreadPool(1); }) == cause);
  CHECK(refused([] { core::run_on(core::allowed_cpus(), [] {}); }) == cause);
  CHECK(refused([] { core::returns_within(std::chrono::seconds(30), [] {}); }) == cause);
}

TEST_CASE("a source line is that of the call", "[core]") {
  const std::string expected = "core_test.cpp:" + std::to_string(__LINE__ + 1);
  const std::vector<std::string> lines{inner(), outer()};
  CHECK(lines == std::vector<std::string>{expected, expected});
}

TEST_CASE("random bytes differ, and read as hexadecimal digits", "[core]") {
  CHECK(core::hexadecimal(std::string("\x00\x0f\xa5\xff", 4)) == "000fa5ff");
  CHECK(core::random_bytes(16).size() == 16);
  CHECK(core::random_bytes(16) != core::random_bytes(16));
  CHECK(core::random_bytes(0).empty());
}

#if !SAFESHUFFLE_ASAN && !SAFESHUFFLE_TSAN
TEST_CASE("a pool that the system has no room for is a MemoryError", "[core]") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_AS, &before) == 0);
  constexpr rlim_t room = rlim_t{1}
                          << 30;  // of address space: less than the stacks of 1000 threads
  const rlimit tight{room, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_AS, &tight) == 0);
  CHECK_THROWS_AS(core::ThreadPool(1000), MemoryError);
  REQUIRE(::setrlimit(RLIMIT_AS, &before) == 0);
}
#endif
