// comm: error records as bytes, exceptions as records, agreement of one rank.
#include "comm/control/agreement.hpp"

#include <atomic>
#include <filesystem>
#include <new>
#include <random>
#include <thread>

#include "core/error_wire.hpp"
#include "support/catch.hpp"
#include "support/thread_limit.hpp"

using namespace safeshuffle;

namespace {

template <typename Throw>
ErrorRecord record_of(const Throw& raise_it) {
  try {
    raise_it();
  } catch (...) {
    return core::current_error();
  }
  FAIL("nothing was thrown");
  return {};
}

const ErrorRecord full{.kind = ErrorKind::format,
                       .code = -7,
                       .rank = 12,
                       .file = std::string("a\0b.safetensors", 15),
                       .tensor = "tensör",
                       .offset = ~std::uint64_t{0},
                       .cause = "two\nlines"};

}  // namespace

TEST_CASE("error records survive encoding", "[comm]") {
  for (const ErrorRecord& record : {full, ErrorRecord{}}) {
    const ErrorRecord back = core::decode_error(core::encode(record));
    CHECK(back.kind == record.kind);
    CHECK(back.code == record.code);
    CHECK(back.rank == record.rank);
    CHECK(back.file == record.file);
    CHECK(back.tensor == record.tensor);
    CHECK(back.offset == record.offset);
    CHECK(back.cause == record.cause);
  }
}

TEST_CASE("bytes that are no record are refused", "[comm]") {
  const std::string good = core::encode(full);
  for (std::size_t length = 0; length < good.size(); ++length) {
    CHECK_THROWS_AS(core::decode_error(good.substr(0, length)), TransportError);
  }
  CHECK_THROWS_AS(core::decode_error(good + "x"), TransportError);
  std::mt19937 random(1);
  for (int round = 0; round < 10'000; ++round) {
    std::string bytes = good;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    try {
      core::decode_error(bytes);
    } catch (const TransportError&) {
      continue;
    }
  }
}

TEST_CASE("any exception becomes a record", "[comm]") {
  CHECK(record_of([] { raise(full); }).file == full.file);
  CHECK(record_of([] { throw std::bad_alloc(); }).kind == ErrorKind::memory);
  CHECK(record_of([] { throw std::runtime_error("odd"); }).cause == "odd");
  CHECK(record_of([] { throw std::runtime_error("odd"); }).kind == ErrorKind::internal);
  CHECK(record_of([] { throw 3; }).cause == "unknown exception");
  const ErrorRecord missing =
      record_of([] { static_cast<void>(std::filesystem::file_size("/does/not/exist")); });
  CHECK(missing.kind == ErrorKind::io);
  CHECK(missing.code == ENOENT);
  CHECK(missing.file == "/does/not/exist");
}

TEST_CASE("one rank agrees with itself", "[comm]") {
  const auto control = comm::make_self_control();
  constexpr std::chrono::seconds timeout{1};
  CHECK(comm::agree_on(*control, timeout, [] { return "-text"; }) ==
        std::vector<std::string>{"-text"});
  try {
    comm::agree_on(*control, timeout, []() -> std::string { raise(full); });
    FAIL("no exception");
  } catch (const FormatError& error) {
    CHECK(error.record().rank == 0);
    CHECK(error.record().cause == full.cause);
  }
}

TEST_CASE("a rank shows that it is at work while it computes", "[comm]") {
  int beats = 0;
  bool computed = false;
  const auto main_thread = std::this_thread::get_id();
  const comm::Heartbeat beat = [&] {
    CHECK(std::this_thread::get_id() == main_thread);
    ++beats;
  };
  comm::beat_during(beat, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    computed = true;
  });
  CHECK(computed);
  CHECK(beats > 1);
}

TEST_CASE("a computation is over before its rank learns of a peer's failure", "[comm]") {
  std::atomic<bool> computed = false;
  const comm::Heartbeat lost = [] { throw TimeoutError("a peer is lost"); };
  const auto compute = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    computed = true;
  };
  CHECK_THROWS_AS(comm::beat_during(lost, compute), TimeoutError);
  CHECK(computed);
}

TEST_CASE("what a computation throws, and the lack of a thread for it, are agreed on", "[comm]") {
  const auto control = comm::make_self_control();
  constexpr std::chrono::seconds timeout{1};
  const auto fail = []() -> std::string { raise(full); };
  CHECK_THROWS_AS(comm::agree_on_computation(*control, timeout, fail), FormatError);
  const auto succeed = [] { return std::string("text"); };
  CHECK(comm::agree_on_computation(*control, timeout, succeed).front() == "text");
  const testing::NoMoreThreads limit;
  try {
    comm::agree_on_computation(*control, timeout, succeed);
    FAIL("no exception");
  } catch (const MemoryError& error) {
    CHECK(error.record().rank == 0);
  }
}
