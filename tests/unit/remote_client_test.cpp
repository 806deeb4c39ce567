#include <algorithm>
#include <chrono>
#include <cstdint>

#include "source/remote/client.hpp"
#include "support/catch.hpp"

using namespace safeshuffle::source;
using namespace std::chrono_literals;

namespace {

/// As many requests as may be in progress end, each after what it takes where so many are.
void end_all(Concurrency& concurrency, double seconds_each) {
  const unsigned limit = concurrency.limit();
  for (unsigned i = 0; i < limit; ++i) concurrency.enter();
  for (unsigned i = 0; i < limit; ++i) {
    concurrency.leave(8 << 20, std::chrono::duration<double>(seconds_each));
  }
}

}  // namespace

TEST_CASE("more requests are in progress as long as that is faster", "[remote]") {
  SECTION("each connection has its own bandwidth") {
    Concurrency concurrency(16);
    for (int i = 0; i < 10; ++i) end_all(concurrency, 0.1);
    CHECK(concurrency.limit() == 16);
  }
  SECTION("six share all that there is") {
    Concurrency concurrency(64);
    unsigned most = 0;
    for (int i = 0; i < 12; ++i) {
      end_all(concurrency, 0.1 * std::max(concurrency.limit(), 6U) / 6);
      most = std::max(most, concurrency.limit());
    }
    CHECK(concurrency.limit() == 6);
    CHECK(most == 9);
  }
  SECTION("no more than there may be") {
    Concurrency concurrency(2);
    for (int i = 0; i < 40; ++i) end_all(concurrency, 0.1);
    CHECK(concurrency.limit() == 2);
  }
}

TEST_CASE("a request is late if it takes much longer than others of its size", "[remote]") {
  Durations durations;
  for (int i = 0; i < 15; ++i) durations.add(8'000'000, 900ms);
  CHECK_FALSE(durations.late(8'000'000));  // too few are known
  durations.add(8'000'000, 900ms);
  CHECK(durations.late(8'000'000) == 3600ms);
  CHECK(durations.late(0) == 500ms);  // no sooner
  for (int i = 0; i < 64; ++i) durations.add(8'000'000, 90ms);
  CHECK(durations.late(26'000'000) == 1080ms);
}
