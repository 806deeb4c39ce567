// The progress bar on terminals of any width.
#include "progress.hpp"

#include <string>

#include "support/catch.hpp"
#include "support/contains.hpp"

using namespace safeshuffle;
using testing::contains;

namespace {

constexpr std::uint64_t total = 137'950'000'000;

std::string line(std::uint64_t bytes, std::size_t columns) {
  return app::progress_line({"verifying", bytes, total, 100}, columns);
}

}  // namespace

TEST_CASE("A progress bar never reaches the last column", "[progress]") {
  const std::uint64_t bytes = GENERATE(std::uint64_t{0}, 1U, 999'999U, total / 3, total - 1, total);
  for (std::size_t columns = 1; columns <= 200; ++columns) {
    CAPTURE(columns, bytes);
    CHECK(line(bytes, columns).size() < columns);
  }
}

TEST_CASE("A progress bar is cut off where it does not fit", "[progress]") {
  const std::string all =
      "verifying [#####...........]  33%  46.0 GB of 138 GB  460 MB/s  3 min left  ";
  CHECK(line(total / 3, 80) == all);
  CHECK(line(total / 3, 1000) == all);
  CHECK(line(total / 3, 40) == "verifying [#####...........]  33%  46.0");
}

TEST_CASE("A progress bar of nothing, and of no time, can be drawn", "[progress]") {
  const std::string nothing = app::progress_line({"loading", 0, 0, 0}, 80);
  CHECK(contains(nothing, "[################] 100%  0 B of 0 B  0 B/s  0.0 s"));
}

TEST_CASE("A progress bar of work that does not consist of bytes has no rate", "[progress]") {
  const app::ProgressState state{"probing", 250, 1000, 2, false};
  CHECK(app::progress_line(state, 80) == "probing [####............]  25%  6.0 s left  ");
}
