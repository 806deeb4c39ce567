// What share of the ceilings a load reached, and what bound it.
#include <cmath>
#include <string>

#include <nlohmann/json.hpp>

#include "safeshuffle/probe.hpp"
#include "safeshuffle/report.hpp"

#include "pipeline/report_wire.hpp"
#include "summary.hpp"
#include "support/catch.hpp"
#include "support/contains.hpp"

using namespace safeshuffle;
using testing::contains;

namespace {

RankReport rank_report() {
  RankReport rank;
  rank.host = "a";
  rank.device = "host";
  rank.read_bytes = 4'000'000'000;
  rank.buffered_bytes = rank.read_bytes;
  rank.sent_bytes = rank.received_bytes = 2'000'000'000;
  rank.kept_bytes = 4'000'000'000;
  rank.read_busy_seconds = 2;
  const auto set = [&](Phase phase, double seconds) {
    rank.phases[static_cast<std::size_t>(phase)] = seconds;
    rank.total_seconds += seconds;
  };
  set(Phase::open, 0.1);
  set(Phase::read, 2);
  set(Phase::pack, 1);
  set(Phase::exchange, 0.5);
  set(Phase::verify, 9);
  return rank;
}

Report sample(std::size_t ranks = 2) {
  Report report;
  report.device = "host (rank 0: no GPU)";
  report.seconds = 3.6;
  report.cached_share = 0;
  report.ranks.assign(ranks, rank_report());
  return report;
}

constexpr Costs known_costs{.read_cold_direct_node = 8e9,
                            .read_cold_buffered_node = 5e9,
                            .read_warm_node = 20e9,
                            .first_touch = 8e9,
                            .pack = 8e9,
                            .exchange = 8e9};

Report with_ceilings(Report report, const Costs& known = known_costs) {
  add_ceilings(report, {"/kept.json", "2026-11-22", known});
  return report;
}

const Reached* find(const Report& report, Phase step) {
  for (const Reached& reached : report.ceilings->steps) {
    if (reached.step == step) return &reached;
  }
  return nullptr;
}

bool near(double a, double b) {
  return std::abs(a - b) < 1e-6 * std::abs(b);
}

}  // namespace

TEST_CASE("reading is compared with all ranks of a node together", "[ceilings]") {
  const Report report = with_ceilings(sample());
  const Reached* read = find(report, Phase::read);
  REQUIRE(read);
  CHECK(read->ceiling == "cold buffered");
  CHECK(near(read->bytes_per_second, 4e9));
  CHECK(near(read->most, 5e9));
  CHECK(near(read->share(), 0.8));
}

TEST_CASE("two nodes read twice as much", "[ceilings]") {
  Report report = sample();
  report.ranks[1].host = "b";
  report = with_ceilings(report);
  CHECK(near(find(report, Phase::read)->most, 10e9));
}

TEST_CASE("the ceiling of reading is that of the way the load read", "[ceilings]") {
  Report report = sample();
  report.cached_share = 0.99;
  CHECK(find(with_ceilings(report), Phase::read) != nullptr);
  report = with_ceilings(report);
  CHECK(find(report, Phase::read)->ceiling == "warm");
  CHECK(near(find(report, Phase::read)->most, 20e9));

  report.cached_share = 0.5;
  CHECK(find(with_ceilings(report), Phase::read) == nullptr);
  report.cached_share.reset();
  CHECK(find(with_ceilings(report), Phase::read) == nullptr);

  for (RankReport& rank : report.ranks) std::swap(rank.direct_bytes, rank.buffered_bytes);
  report = with_ceilings(report);
  CHECK(find(report, Phase::read)->ceiling == "cold direct");
  CHECK(near(find(report, Phase::read)->most, 8e9));
  report.ranks[0].buffered_bytes = 1;
  CHECK(find(with_ceilings(report), Phase::read) == nullptr);
}

TEST_CASE("what was read in several ways has the ceiling of all", "[ceilings]") {
  Report report = sample();
  report.cached_share = 0.5;  // does not matter: every piece was looked at
  for (RankReport& rank : report.ranks) {
    rank.direct_bytes = 3'000'000'000;
    rank.buffered_bytes = 1'000'000'000;
    rank.read_choices = {{true, "cold", rank.direct_bytes}, {false, "cached", rank.buffered_bytes}};
  }
  const Report compared = with_ceilings(report);
  const Reached* read = find(compared, Phase::read);
  REQUIRE(read);  // 6 GB at 8 GB/s, then 2 GB at 20 GB/s
  CHECK(read->ceiling == "cold direct and warm");
  CHECK(near(read->most, 8e9 / 0.85));
  CHECK(find(with_ceilings(report, {.read_warm_node = 20e9}), Phase::read) == nullptr);
  for (RankReport& rank : report.ranks) rank.read_choices[1].reason = "caching unknown";
  CHECK(find(with_ceilings(report), Phase::read) == nullptr);
  report.cached_share = 1;
  report = with_ceilings(report);
  CHECK(find(report, Phase::read)->ceiling == "cold direct and warm");
}

TEST_CASE("a rank that reads nothing does not hide what the others read", "[ceilings]") {
  Report report = sample();
  report.ranks[1].read_bytes = report.ranks[1].buffered_bytes = 0;
  report = with_ceilings(report);
  CHECK(near(find(report, Phase::read)->bytes_per_second, 2e9));
}

TEST_CASE("what is cached by an estimate is read at the rate of what is cached", "[ceilings]") {
  Report report = sample();
  report.cached_share.reset();
  for (RankReport& rank : report.ranks) {
    rank.read_choices = {{false, "likely cached", rank.read_bytes}};
  }
  report = with_ceilings(report);
  const Reached* read = find(report, Phase::read);
  REQUIRE(read);
  CHECK(read->ceiling == "warm");
  CHECK(near(read->most, 20e9));
}

TEST_CASE("what is read straight to its place touches new memory", "[ceilings]") {
  Report report = sample();
  for (RankReport& rank : report.ranks) {
    rank.read_choices = {{false, "cached", rank.read_bytes}};
    rank.read_busy_seconds = 0;
  }
  report = with_ceilings(report);
  const Reached* read = find(report, Phase::read);
  REQUIRE(read);  // 8 GB read at 20 GB/s, 2 GB of each rank kept: 0.4 s + 0.25 s
  CHECK(read->ceiling == "warm into new memory");
  CHECK(near(read->bytes_per_second, 4e9));
  CHECK(near(read->share(), 0.325));
  CHECK(find(report, Phase::pack) == nullptr);
}

TEST_CASE("packing and receiving touch new memory", "[ceilings]") {
  const Report report = with_ceilings(sample());
  const Reached* pack = find(report, Phase::pack);
  REQUIRE(pack);  // 4 GB packed, of which 2 GB stay: 0.5 s + 0.25 s
  CHECK(near(pack->share(), 0.75));
  CHECK(near(pack->bytes_per_second, 4e9));
  const Reached* exchange = find(report, Phase::exchange);
  REQUIRE(exchange);  // 2 GB sent, 2 GB received: 0.25 s + 0.25 s
  CHECK(near(exchange->share(), 1));
}

TEST_CASE("on GPUs, packing is part of the exchange, and data is copied while it is read",
          "[ceilings]") {
  Report report = sample();
  report.device = "NVIDIA H200 at 0000:1B:00.0";
  Costs known = known_costs;
  known.host_to_device = 4e9;
  report = with_ceilings(report, known);
  CHECK(find(report, Phase::pack) == nullptr);
  CHECK(near(find(report, Phase::h2d)->bytes_per_second, 2e9));
  CHECK(near(find(report, Phase::h2d)->most, 4e9));
  CHECK(near(find(report, Phase::exchange)->most, 8e9));
}

TEST_CASE("what is not known, or did not happen, has no ceiling", "[ceilings]") {
  CHECK(with_ceilings(sample(), Costs{}).ceilings->steps.empty());
  Report report = sample(1);
  report.ranks[0].sent_bytes = report.ranks[0].received_bytes = 0;
  CHECK(find(with_ceilings(report), Phase::exchange) == nullptr);
  report.ranks[0].read_bytes = report.ranks[0].buffered_bytes = 0;
  CHECK(with_ceilings(report).ceilings->steps.empty());
}

TEST_CASE("the bottleneck is the longest phase, without verification", "[ceilings]") {
  const Bottleneck found = bottleneck(sample());
  CHECK(found.phase == Phase::read);
  CHECK(near(found.seconds, 2));
  CHECK(near(found.total_seconds, 3.6));
}

TEST_CASE("reading counts as long as reads are in progress, on the rank where it takes longest",
          "[ceilings]") {
  Report report = sample();
  for (RankReport& rank : report.ranks) {
    rank.phases[static_cast<std::size_t>(Phase::read)] = 0.2;
    rank.read_busy_seconds = 0.5;
  }
  CHECK(bottleneck(report).phase == Phase::pack);
  report.ranks[1].read_busy_seconds = 1.5;  // the other waits for it, in the exchange
  const Bottleneck found = bottleneck(report);
  CHECK(found.phase == Phase::read);
  CHECK(near(found.seconds, 1.5));
  CHECK(near(found.total_seconds, 1.8));
}

TEST_CASE("one sentence names the bottleneck, with its share if there is a ceiling", "[ceilings]") {
  CHECK(app::bottleneck_line(sample()) == "bound by reading: 2.000 of 3.600 s\n");
  CHECK(app::bottleneck_line(with_ceilings(sample())) ==
        "bound by reading: 4.00 of 5.00 GB/s (80 % of cold buffered)\n");
  CHECK(app::bottleneck_line(with_ceilings(sample(), Costs{})) ==
        "bound by reading: 2.000 of 3.600 s\n");
  Report report = sample();
  for (RankReport& rank : report.ranks) {
    rank.phases[static_cast<std::size_t>(Phase::allocate)] = 5;
  }
  CHECK(app::bottleneck_line(with_ceilings(report)) ==
        "bound by allocating memory: 5.000 of 8.600 s\n");
}

TEST_CASE("the rate of reading counts what the loading thread reads itself", "[ceilings]") {
  Report report = sample();
  report.ranks[0].read_busy_seconds = 0.001;  // all is cached, and packed from there
  report.ranks[1].read_busy_seconds = 4;      // reads went on beside other phases
  const auto ranks = nlohmann::json::parse(to_json(report))["ranks"];
  CHECK(ranks[0]["read_gigabytes_per_second"] == 2);
  CHECK(ranks[1]["read_gigabytes_per_second"] == 1);
}

TEST_CASE("the report has bottleneck and ceilings", "[ceilings]") {
  auto json = nlohmann::json::parse(to_json(sample()));
  CHECK(json["schema_version"] == 1);
  CHECK(json["bottleneck"]["phase"] == "read");
  CHECK_FALSE(json.contains("ceilings"));
  CHECK(json["cached_share"] == 0);
  Report report = with_ceilings(sample());
  report.cached_share.reset();
  json = nlohmann::json::parse(to_json(report));
  CHECK(json["cached_share"].is_null());
  CHECK(json["ceilings"]["probe"] == "/kept.json");
  CHECK(json["ceilings"]["date"] == "2026-11-22");
  REQUIRE(json["ceilings"]["steps"].size() == 3);
  const auto& read = json["ceilings"]["steps"][0];
  CHECK(read["step"] == "read");
  CHECK(read["ceiling"] == "cold buffered");
  CHECK(near(read["gigabytes_per_second"], 4));
  CHECK(near(read["ceiling_gigabytes_per_second"], 5));
  CHECK(near(read["share"], 0.8));
}

TEST_CASE("ranks tell each other what they have read", "[ceilings]") {
  RankReport rank = rank_report();
  rank.fallbacks = {"a"};
  rank.read_choices = {{true, "cold", 3}, {false, "cached", 4}};
  const RankReport decoded = core::from_wire<RankReport>(core::to_wire(rank));
  CHECK(decoded.fallbacks == rank.fallbacks);
  REQUIRE(decoded.read_choices.size() == 2);
  CHECK(decoded.read_choices[0].direct);
  CHECK(decoded.read_choices[1].reason == "cached");
  CHECK(decoded.read_choices[1].bytes == 4);
}
