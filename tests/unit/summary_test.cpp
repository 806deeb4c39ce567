// What a load did, for people.
#include "summary.hpp"

#include <algorithm>
#include <sstream>
#include <string>

#include "support/catch.hpp"
#include "support/contains.hpp"

using namespace safeshuffle;
using testing::contains;

namespace {

RankReport rank_report(std::uint32_t rank) {
  RankReport report;
  report.rank = rank;
  report.phases[static_cast<std::size_t>(Phase::open)] = 0.25;
  report.phases[static_cast<std::size_t>(Phase::pack)] = 0.5;
  report.total_seconds = 0.75;
  report.read_busy_seconds = 0.4;
  report.read_hidden_seconds = 0.125;
  report.read_bytes = 1'500'000'000;
  report.io_path = "posix buffered";
  return report;
}

Report sample(std::uint32_t ranks) {
  Report report;
  report.device = "host";
  report.transport = "mpi";
  report.waves = 1;
  report.window = 64 << 20;
  report.seconds = 0.75;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    report.ranks.push_back(rank_report(rank));
    report.tensor_bytes += report.ranks.back().read_bytes;
  }
  return report;
}

std::size_t longest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t longest = 0;
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

}  // namespace

TEST_CASE("The summary says what was loaded, how fast, and how", "[summary]") {
  const std::string text = app::summary(sample(2));
  CAPTURE(text);
  CHECK(contains(text, "loaded 3.00 GB onto 2 ranks in 0.750 s: 4.00 GB/s\n"));
  CHECK(contains(text,
                 "device host, transport mpi, I/O posix buffered; "
                 "1 wave with a window of 64 MiB\n"));
  CHECK(contains(text, "rank 0  1.50 GB"));
  CHECK(contains(text, "rank 1  1.50 GB"));
}

TEST_CASE("The summary shows the phases that took time, and no others", "[summary]") {
  const std::string text = app::summary(sample(1));
  CAPTURE(text);
  CHECK(contains(text, "seconds   open   pack  total\n"));
  CHECK(contains(text, "rank 0   0.250  0.500  0.750\n"));
  CHECK(contains(text, "\nreads in progress for 0.400 s, 0.125 s of it beside other work\n"));
}

TEST_CASE("The summary says what automatic mode chose, over all ranks", "[summary]") {
  Report report = sample(2);
  CHECK_FALSE(contains(app::summary(report), "\nread "));
  report.ranks[0].read_choices = {{true, "cold", 1'400'000'000}, {false, "cached", 1000}};
  report.ranks[1].read_choices = {{true, "cold", 1'500'000'000}};
  CHECK(contains(app::summary(report),
                 "\nread 2.90 GB directly (cold), 1.00 kB through the page cache "
                 "(cached)\n"));
}

TEST_CASE("The summary shows each fallback once", "[summary]") {
  Report report = sample(2);
  for (RankReport& rank : report.ranks) rank.fallbacks = {"direct I/O: refused"};
  const std::string text = app::summary(report);
  const std::string line = "fallback: direct I/O: refused\n";
  CHECK(contains(text, line));
  CHECK(text.find(line) == text.rfind(line));
}

TEST_CASE("The summary says how many tensors are placed how", "[summary]") {
  Report report = sample(2);
  report.placement.partitioned = {561, 1'490'000'000};
  report.placement.replicated = {1, 512};
  CHECK(contains(app::summary(report),
                 "\npartitioned 561 tensors of 1.49 GB; replicated 1 tensor of 512 B\n"));
  report.placement.partitioned = {};
  report.placement.single = {2, 3000};
  report.placement.dropped = {3, 4000};
  CHECK(contains(app::summary(report),
                 "\npartitioned 0 tensors of 0 B; replicated 1 tensor of 512 B; on a single rank 2 "
                 "tensors of 3.00 kB; dropped 3 tensors of 4.00 kB\n"));
}

TEST_CASE("The summary does not list all fallbacks of a large group", "[summary]") {
  Report report = sample(100);
  for (RankReport& rank : report.ranks) {
    rank.fallbacks = {"file " + std::to_string(rank.rank) + ": refused"};
  }
  const std::string text = app::summary(report);
  CAPTURE(text);
  CHECK(contains(text, "fallback: file 0: refused\n"));
  CHECK(contains(text, "fallback: 84 more on other ranks, see --report\n"));
  CHECK_FALSE(contains(text, "fallback: file 99: refused\n"));
}

TEST_CASE("The summary of a large group fits 120 columns", "[summary]") {
  Report report = sample(512);
  report.seconds = 9 * 1234.5678;
  for (RankReport& rank : report.ranks) {
    rank.phases.fill(1234.5678);
    rank.total_seconds = report.seconds;
  }
  CHECK(longest_line(app::summary(report)) <= 120);
}

TEST_CASE("A load of nothing in no time has a summary", "[summary]") {
  Report report = sample(1);
  report.seconds = 0;
  report.tensor_bytes = 0;
  report.ranks[0].phases.fill(0);
  report.ranks[0].read_bytes = 0;
  report.ranks[0].io_path = "none";
  CHECK(contains(app::summary(report), "transport mpi, I/O none; "));
  CHECK(contains(app::summary(report), "loaded 0 B onto 1 rank in 0.000 s: 0.00 GB/s\n"));
}
