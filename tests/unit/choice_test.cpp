// What automatic assignment selects, and how long loads are estimated to take.
#include "plan/choice.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/plan.hpp"

#include "support/assignment.hpp"
#include "support/catalogs.hpp"
#include "support/catch.hpp"
#include "support/placement.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

constexpr std::uint64_t mi = std::uint64_t{1} << 20;

/// Files of one tensor each, with a row per MiB.
Catalog files_of_rows(const std::vector<std::uint64_t>& rows) {
  std::vector<std::vector<Made>> files;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    files.push_back({{numbered("t", i), DType::U8, {rows[i], mi}}});
  }
  return make_catalog(files);
}

Plan planned(const std::vector<std::uint64_t>& rows, std::uint32_t world, const Site& site,
             const Placement& placement = whole()) {
  PlanOptions options;
  options.site = site;
  Plan plan = make_plan(files_of_rows(rows), {rows.size(), placement}, world, options);
  plan.prove();
  return plan;
}

}  // namespace

TEST_CASE("even files are dealt in turns, uneven ones so that they are even", "[choice]") {
  const auto chosen = [](const std::vector<std::uint64_t>& rows, std::uint32_t world) {
    return planned(rows, world, {}).assignment();
  };
  CHECK(chosen({100, 100, 100, 96}, 2) == Assignment::round_robin);
  CHECK(chosen({1000, 10, 1000, 10}, 2) == Assignment::balanced);
  CHECK(chosen({1000, 10, 10, 10}, 2) == Assignment::striped);
  CHECK(chosen({1000}, 1) == Assignment::round_robin);
}

TEST_CASE("what is chosen instead of round-robin is at least 5 % faster itself", "[choice]") {
  using plan::Candidate;
  const auto best = [](double round_robin, double balanced, double sliced) {
    const std::vector<Candidate> candidates{{Assignment::round_robin, round_robin},
                                            {Assignment::balanced, balanced},
                                            {Assignment::sliced, sliced}};
    return plan::best(candidates).assignment;
  };
  CHECK(best(100, 96, 96) == Assignment::round_robin);
  CHECK(best(100, 97, 94) == Assignment::sliced);
  CHECK(best(100, 94.5, 94) == Assignment::balanced);
  CHECK(best(100, 94, 89) == Assignment::sliced);
  CHECK(best(0, 0, 0) == Assignment::round_robin);
}

TEST_CASE("what is less than 5 % less even, or faster, makes no difference", "[choice]") {
  Site slow_storage;
  slow_storage.costs.read_cold_direct_rank = 1e6;  // so that nothing else matters
  const auto plan = [](std::size_t in_first, const Site& site) {
    PlanOptions options;
    options.site = site;
    std::vector<std::vector<Made>> files(2);
    for (std::size_t i = 0; i < 200; ++i) {
      files[i < in_first ? 0 : 1].push_back({numbered("t", i), DType::U8, {mi}});
    }
    return make_plan(make_catalog(files), {200, whole()}, 2, options);
  };
  const Plan nearly_even = plan(104, slow_storage);  // 4 % more than the average
  CHECK(nearly_even.assignment() == Assignment::round_robin);
  CHECK_FALSE(has(nearly_even, "striped"));
  CHECK(plan(107, slow_storage).assignment() == Assignment::striped);
  const Plan hardly_slower = plan(107, {});  // because both ranks keep and exchange all
  CHECK(hardly_slower.assignment() == Assignment::round_robin);
  CHECK(has(hardly_slower, "striped"));
}

TEST_CASE("one file on many ranks is striped", "[choice]") {
  std::vector<Made> tensors;
  for (std::size_t i = 0; i < 64; ++i) tensors.push_back({numbered("t", i), DType::U8, {mi}});
  const Plan plan = make_plan(make_catalog({tensors}), {64, whole()}, 8);
  CHECK(plan.assignment() == Assignment::striped);
  CHECK(has(plan, ", round-robin 0."));
  CHECK(has(plan, "; costs: defaults; 0 % of the files known to be cached"));
}

TEST_CASE("the reason says where the costs come from", "[choice]") {
  Site site = cached();
  const auto says = [&](const char* origin) {
    return has(planned({64, 64}, 2, site), "; costs: " + std::string(origin) + "; 100 % of");
  };
  CHECK(says("defaults"));
  site.costs.exchange = 1e9;
  CHECK(says("given"));
  site.costs_origin = "/a/probe.json";
  CHECK(says("/a/probe.json"));
}

TEST_CASE("small files are not all opened by all ranks", "[choice]") {
  const auto chosen = [](std::size_t files, std::uint64_t columns) {
    const Made tensor{{}, DType::U8, {64, columns}};
    std::vector<std::vector<Made>> contents(files, {tensor});
    for (std::size_t i = 0; i < files; ++i) contents[i].front().name = numbered("t", i);
    PlanOptions options;
    options.site = cached();
    return make_plan(make_catalog(contents), std::vector<Placement>(files, cut(0, 64)), 4, options)
        .assignment();
  };
  CHECK(chosen(1024, 512) == Assignment::round_robin);
  CHECK(chosen(16, 64 * 512) == Assignment::sliced);  // the same bytes
}

TEST_CASE("slices are read from the page cache of one node, on the host", "[choice]") {
  const std::vector<std::uint64_t> rows(4, 64);
  const Placement split = cut(0, 64);
  CHECK(planned(rows, 4, cached(), split).assignment() == Assignment::sliced);
  CHECK(planned(rows, 4, cached()).assignment() == Assignment::sliced);
  CHECK(has(planned(rows, 4, cached(), split), "; 100 % of the files known to be cached"));
  CHECK(planned(rows, 4, {}, split).assignment() == Assignment::round_robin);
  Site nodes = cached();
  nodes.nodes = 2;
  CHECK(planned(rows, 4, nodes).assignment() == Assignment::round_robin);
  CHECK(planned(rows, 1, cached(), split).assignment() == Assignment::round_robin);
}

TEST_CASE("files that one of several nodes would read alone are striped", "[choice]") {
  std::vector<std::vector<Made>> files(2);
  for (std::size_t i = 0; i < 64; ++i) {
    files[i % 2].push_back({numbered("t", i), DType::U8, {64 * mi}});
  }
  PlanOptions options;
  options.site.nodes = 2;
  const Plan plan = make_plan(make_catalog(files), {64, whole()}, 4, options);
  CHECK(plan.assignment() == Assignment::striped);
  CHECK_FALSE(has(plan, "cached"));
}

TEST_CASE("what divides into slices is not exchanged where storage is faster", "[choice]") {
  // Two thirds are split along dim 0, one third along dim 1.
  std::vector<std::vector<Made>> files(4);
  std::vector<Placement> placements;
  for (std::size_t i = 0; i < 12; ++i) {
    files[i / 3].push_back({numbered("t", i), DType::U8, {64, mi}});
    placements.push_back(i % 3 == 2 ? cut(1, mi) : cut(0, 64));
  }
  const auto chosen = [&](const Site& site) {
    PlanOptions options;
    options.site = site;
    const Plan plan = make_plan(make_catalog(files), placements, 4, options);
    plan.prove();
    return plan.assignment();
  };
  Site site;
  CHECK(chosen(site) == Assignment::round_robin);
  site.costs.read_cold_buffered_rank = site.costs.read_cold_buffered_node = 20e9;
  CHECK(chosen(site) == Assignment::round_robin);
  site.reads_directly = false;
  CHECK(chosen(site) == Assignment::mixed);
  site.reads_directly = true;
  site.costs.read_cold_direct_rank = site.costs.read_cold_direct_node = 20e9;
  CHECK(chosen(site) == Assignment::mixed);
  site.cached_share = 1;
  CHECK(chosen(site) == Assignment::sliced);
  site.device = DeviceKind::cuda;
  CHECK(chosen(site) == Assignment::round_robin);
  site.costs.exchange = 5e9;  // no NVLink
  CHECK(chosen(site) == Assignment::mixed);
}

TEST_CASE("between GPUs, whole tensors are broadcast rather than read by each", "[choice]") {
  CHECK(planned(std::vector<std::uint64_t>(8, 64), 8, cached(DeviceKind::cuda)).assignment() ==
        Assignment::round_robin);
}

TEST_CASE("measured costs decide", "[choice]") {
  const std::vector<std::uint64_t> rows(4, 64);
  Site site = cached();
  site.costs.exchange = 1e15;  // and so costs nothing
  CHECK(planned(rows, 4, site).assignment() == Assignment::round_robin);
  site.costs.exchange = 1e6;
  const Plan plan = planned(rows, 4, site);
  CHECK(plan.assignment() == Assignment::sliced);
  // 256 MiB for each rank at 8 GB/s from the page cache into memory that comes at 8 GB/s; waves.
  CHECK(has(plan, "estimated 0.067 s"));
}

TEST_CASE("what every rank reads for itself alone is left so", "[choice]") {
  const Plan plan =
      make_plan(files_of_rows({900, 10}),
                {whole(Placement::Kind::single), whole(Placement::Kind::single, 1)}, 2);
  CHECK(plan.assignment() == Assignment::round_robin);
}

TEST_CASE("who selects an assignment is given no reasons", "[choice]") {
  PlanOptions options;
  options.assignment = Assignment::balanced;
  CHECK(make_plan(files_of_rows({1}), {whole()}, 2, options).assignment_reason().empty());
}

TEST_CASE("an impossible site is a ConfigError", "[choice]") {
  Site nowhere;
  nowhere.nodes = 0;
  CHECK_THROWS_AS(planned({1}, 1, nowhere), ConfigError);
  for (const double share : {-0.1, 1.1, std::nan("")}) {
    Site site;
    site.cached_share = share;
    CHECK_THROWS_AS(planned({1}, 1, site), ConfigError);
  }
  for (const double cost : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    Site site;
    site.costs.wave_seconds = cost;
    CHECK_THROWS_AS(planned({1}, 1, site), ConfigError);
  }
}
