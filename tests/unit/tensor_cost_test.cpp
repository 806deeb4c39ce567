// Which tensors are read in slices, by what it costs.
#include "plan/tensor_cost.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "safeshuffle/plan.hpp"
#include "safeshuffle/target.hpp"

#include "plan/cost_fields.hpp"
#include "plan/schedule.hpp"
#include "support/assignment.hpp"
#include "support/catalogs.hpp"
#include "support/catch.hpp"
#include "support/in_memory_load.hpp"
#include "support/pseudo_random.hpp"
#include "support/sanitizers.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

using Sliced = std::vector<bool>;

constexpr std::uint64_t mi = std::uint64_t{1} << 20;

PlanOptions mixed_at(const Site& site, std::uint32_t replicas = 1) {
  PlanOptions options;
  options.assignment = Assignment::mixed;
  options.site = site;
  options.replicas = replicas;
  return options;
}

// By tensor; the plan is proved.
Sliced sliced_in(const Plan& plan) {
  plan.prove();
  return plan.schedule().sliced;
}

// Two tensors of 64 MiB: one is split along its first dimension, the other replicated.
Plan split_and_whole(std::uint32_t world, const PlanOptions& options) {
  const Shape shape{64, mi};
  return make_plan(make_catalog({{{"split", DType::U8, shape}, {"whole", DType::U8, shape}}}),
                   {cut(0, 64), whole()}, world, options);
}

Sliced chosen(std::uint32_t world, const Site& site, std::uint32_t replicas = 1) {
  return sliced_in(split_and_whole(world, mixed_at(site, replicas)));
}

// Of one tensor.
bool is_sliced(const Made& tensor, const Placement& placement, std::uint32_t world,
               const Site& site, std::uint32_t replicas = 1) {
  return sliced_in(
      make_plan(make_catalog({{tensor}}), {placement}, world, mixed_at(site, replicas)))[0];
}

}  // namespace

TEST_CASE("in one model, some tensors are sliced, and others are not", "[tensor_cost]") {
  // 8 ranks read at most 40 GB/s together: eight copies of a tensor take longer than a broadcast.
  const std::uint32_t world = GENERATE(1U, 2U, 4U, 8U);
  CAPTURE(world);
  CHECK(chosen(world, cached()) == Sliced{world > 1, world > 1 && world < 8});
}

TEST_CASE("one rate decides between slices and scattering", "[tensor_cost]") {
  Site site = cached();
  CHECK(chosen(8, site) == Sliced{true, false});
  site.costs.exchange = 1e15;
  CHECK(chosen(8, site) == Sliced{false, false});
  Site gpus = cached(DeviceKind::cuda);
  CHECK(chosen(4, gpus) == Sliced{false, false});
  gpus.costs.exchange = 5e9;
  CHECK(chosen(4, gpus) == Sliced{true, true});
  gpus.costs.wave_seconds = 0.1;
  CHECK(chosen(4, gpus) == Sliced{false, false});
}

TEST_CASE("one rate decides between slices and a broadcast", "[tensor_cost]") {
  Site site = cached();
  CHECK(chosen(8, site) == Sliced{true, false});
  site.costs.read_warm_node = 100e9;
  CHECK(chosen(8, site) == Sliced{true, true});
  site.costs.read_warm_rank = 4e9;
  CHECK(chosen(8, site) == Sliced{true, false});
}

TEST_CASE("GPUs that convert slowly do not convert whole tensors each", "[tensor_cost]") {
  PlanOptions options = mixed_at(cached(DeviceKind::cuda));
  options.dtype = DTypePolicy::f16;
  options.site.costs.exchange = 1e9;
  const auto sliced = [&] {
    const Catalog catalog =
        make_catalog({{{"converted", DType::BF16, {32 * mi}}, {"kept", DType::U8, {64 * mi}}}});
    return sliced_in(make_plan(catalog, {whole(), whole()}, 2, options));
  };
  CHECK(sliced() == Sliced{true, true});
  options.site.costs.pack_convert = 0.5e9;
  CHECK(sliced() == Sliced{false, true});
  options.site.costs.pack = 0.5e9;
  CHECK(sliced() == Sliced{false, false});
}

TEST_CASE("GPUs copy all that they read", "[tensor_cost]") {
  Site gpus = cached(DeviceKind::cuda);
  gpus.costs.exchange = 2e9;
  CHECK(chosen(2, gpus) == Sliced{true, true});
  gpus.costs.host_to_device = 2e9;
  CHECK(chosen(2, gpus) == Sliced{false, false});
}

TEST_CASE("with replicas, parts of rows would be read from the page cache twice", "[tensor_cost]") {
  const Made rows{"rows", DType::U8, {8192, 7168}};
  CHECK(is_sliced(rows, cut(0, 8192), 4, cached(), 2));
  CHECK_FALSE(is_sliced(rows, cut(1, 7168), 4, cached(), 2));
  CHECK(is_sliced(rows, cut(1, 7168), 4, cached()));
}

TEST_CASE("storage does not read more for slices than for the tensor", "[tensor_cost]") {
  Site site;
  site.costs.exchange = 1e6;
  const Made tensor{"t", DType::U8, {64, mi}};
  CHECK(is_sliced(tensor, cut(0, 64), 4, site));
  CHECK(is_sliced(tensor, whole(Placement::Kind::single, 1), 4, site));
  CHECK_FALSE(is_sliced(tensor, cut(0, 64), 4, site, 2));
  CHECK_FALSE(is_sliced(tensor, whole(), 4, site));
  CHECK_FALSE(is_sliced(tensor, cut(1, mi), 4, site));
  CHECK_FALSE(is_sliced(tensor, sharing_parts(0, {32, 32}), 4, site));
  site.cached_share = 0.94;
  CHECK_FALSE(is_sliced(tensor, whole(), 2, site));
  site.cached_share = 0.96;
  CHECK(is_sliced(tensor, whole(), 2, site));
  site.cached_share = 1;
  CHECK(is_sliced(tensor, cut(0, 64), 4, site, 2));
  CHECK(is_sliced(tensor, whole(), 4, site));
  CHECK(is_sliced(tensor, cut(1, mi), 4, site));
  CHECK(is_sliced(tensor, sharing_parts(0, {32, 32}), 4, site));
}

TEST_CASE("slices from storage are not small", "[tensor_cost]") {
  Site site;
  site.costs.exchange = 1e6;
  CHECK(is_sliced({"t", DType::U8, {mi}}, cut(0, mi), 4, site));
  CHECK_FALSE(is_sliced({"t", DType::U8, {mi}}, cut(0, mi), 8, site));
  CHECK_FALSE(is_sliced({"t", DType::U8, {1000}}, whole(Placement::Kind::single), 8, site));
  site.cached_share = 1;
  CHECK(is_sliced({"t", DType::U8, {mi}}, cut(0, mi), 8, site));
}

TEST_CASE("the page cache of one node says nothing about other nodes", "[tensor_cost]") {
  Site site = cached();
  site.costs.exchange = 1e6;
  CHECK(chosen(4, site) == Sliced{true, true});
  site.nodes = 2;
  CHECK(chosen(4, site) == Sliced{true, false});
}

TEST_CASE("a tensor that several targets need is sliced if no rank needs more than a part",
          "[tensor_cost]") {
  const Catalog catalog = make_catalog({{{"t", DType::U8, {64, mi}}}});
  const auto half = [](const char* name, std::uint64_t first) {
    return std::make_shared<const Composition>(
        Composition{name, {}, {32, mi}, 0, {{0, first, 0, 32}}});
  };
  const auto sliced = [&](const Placement& first, const Placement& second) -> bool {
    const std::vector<Target> targets{{0, first, half("first", 0)},
                                      {0, second, half("second", 32)}};
    return sliced_in(make_plan(catalog, targets, 2, mixed_at({})))[0];
  };
  // Each rank reads what lies between its parts, too.
  CHECK_FALSE(sliced(cut(0, 32), cut(0, 32)));
  CHECK_FALSE(sliced(whole(), whole()));
  CHECK(sliced(whole(Placement::Kind::single), whole(Placement::Kind::single, 1)));
}

TEST_CASE("where storage would become the bottleneck, nothing is sliced", "[tensor_cost]") {
  Site site;
  site.cached_share = 0.96;  // so of a replicated tensor, two ranks read 4 % more than it has
  site.reads_directly = GENERATE(true, false);
  CHECK(chosen(2, site) == Sliced{true, true});
  Costs& costs = site.costs;
  (site.reads_directly ? costs.read_cold_buffered_node : costs.read_cold_direct_node) = 0.1e9;
  CHECK(chosen(2, site) == Sliced{true, true});
  (site.reads_directly ? costs.read_cold_direct_node : costs.read_cold_buffered_node) = 0.1e9;
  CHECK(chosen(2, site) == Sliced{true, false});
}

TEST_CASE("where storage takes longest either way, slices save exchanges", "[tensor_cost]") {
  Site site;
  site.costs.read_cold_direct_node = 1e6;
  CHECK(chosen(4, site) == Sliced{true, false});
}

TEST_CASE("small slices are not fetched from a server that answers late", "[tensor_cost]") {
  Site site;
  site.costs.read_cold_direct_rank = site.costs.read_cold_direct_node = 1e9;
  CHECK(chosen(4, site) == Sliced{true, false});  // slices of 16 MiB
  site.costs.request_seconds = 0.1;               // in which a connection fetches 6.25 MB
  CHECK(chosen(4, site) == Sliced{true, false});
  site.costs.request_seconds = 1;
  CHECK(chosen(4, site) == Sliced{false, false});
}

TEST_CASE("mixed plans by any costs are proved, and load the right bytes", "[tensor_cost]") {
  std::uint32_t sliced_in_part = 0;
  for (std::uint32_t seed = 0; seed < testing::cases(200U); ++seed) {
    CAPTURE(seed);
    PseudoRandom random(seed);
    Site site;
    site.device = random.below(2) == 0 ? DeviceKind::host : DeviceKind::cuda;
    site.cached_share = random.below(4) == 0 ? 0.5 : 1;
    for (const plan::CostField& field : plan::cost_fields) {
      site.costs.*field.value = std::pow(10.0, 8 + static_cast<double>(random.below(4)));
    }
    site.costs.wave_seconds = std::pow(10.0, -9 + static_cast<double>(random.below(5)));
    site.costs.request_seconds = seed % 2 == 0 ? 0 : 1e-3;
    const std::uint32_t world = 1U << random.below(4);
    PlanOptions options = mixed_at(site, world > 1 && random.below(2) == 0 ? 2 : 1);
    options.window = 4096U << random.below(8);
    const RandomModel model = random_model(seed);
    const Plan plan = make_plan(model.catalog, model.placements, world, options);
    CHECK_NOTHROW(plan.prove());
    CHECK(InMemoryLoad(plan.schedule()).result_is_right());
    CHECK(make_plan(model.catalog, model.placements, world, options).hash() == plan.hash());
    const std::vector<bool>& sliced = plan.schedule().sliced;
    const auto some = std::ranges::count(sliced, true);
    if (some != 0 && some != std::ssize(sliced)) ++sliced_in_part;
  }
  CHECK(sliced_in_part > testing::cases(200U) / 10);
}

TEST_CASE("plans that slice other tensors have other hashes", "[tensor_cost]") {
  Site fast = cached();
  fast.costs.read_warm_node = 100e9;
  CHECK(split_and_whole(8, mixed_at(fast)).hash() != split_and_whole(8, mixed_at(cached())).hash());
}

TEST_CASE("what is sliced, scattered and broadcast is said", "[tensor_cost]") {
  CHECK(split_and_whole(8, mixed_at(cached())).assignment_reason() ==
        "50 % of the bytes sliced, 50 % broadcast");
  PlanOptions automatic;
  CHECK(has(split_and_whole(2, automatic), "; 50 % of the bytes scattered, 50 % broadcast"));
  CHECK_FALSE(has(split_and_whole(1, automatic), "bytes"));
  // One file with little but one tensor: round-robin would leave one rank without work.
  const Plan nearly_all =
      make_plan(make_catalog({{{"split", DType::U8, {64, mi}}, {"whole", DType::U8, {9}}}}),
                {cut(0, 64), whole()}, 2, automatic);
  CHECK(has(nearly_all, "over 99 % of the bytes sliced, under 1 % broadcast"));
}

namespace {

// 12 tensors in 4 files, of which so many are split along dim 0, all others along dim 1; from
// storage that is faster than the ranks.
Plan planned_with(std::size_t rows, const Site& given = {}) {
  std::vector<std::vector<Made>> files(4);
  std::vector<Placement> placements;
  for (std::size_t i = 0; i < 12; ++i) {
    files[i / 3].push_back({numbered("t", i), DType::U8, {64, mi}});
    placements.push_back(i < rows ? cut(0, 64) : cut(1, mi));
  }
  PlanOptions options;
  options.site = given;
  options.site.costs.read_cold_direct_rank = options.site.costs.read_cold_direct_node = 100e9;
  Plan plan = make_plan(make_catalog(files), placements, 4, options);
  plan.prove();
  return plan;
}

}  // namespace

TEST_CASE("round-robin stays unless slices of some tensors save 5 %", "[tensor_cost][choice]") {
  const Plan hardly = planned_with(1);
  CHECK(hardly.assignment() == Assignment::round_robin);
  CHECK(has(hardly, ", mixed "));
  const Plan clearly = planned_with(6);
  CHECK(clearly.assignment() == Assignment::mixed);
  CHECK(has(clearly, "; 50 % of the bytes sliced, 50 % scattered"));
}

TEST_CASE("mixed is a candidate only if it slices some tensors, and not all",
          "[tensor_cost][choice]") {
  const Plan none = planned_with(0);
  CHECK_FALSE(has(none, "mixed"));
  CHECK_FALSE(has(none, "sliced"));
  const Plan all = planned_with(12);
  CHECK(all.assignment() == Assignment::sliced);
  CHECK_FALSE(has(all, "mixed"));
  const Plan all_cached = planned_with(6, cached());
  CHECK(all_cached.assignment() == Assignment::sliced);
  CHECK_FALSE(has(all_cached, "mixed"));
}

TEST_CASE("what fits a budget is chosen for the window that fits", "[tensor_cost]") {
  PlanOptions options = mixed_at(cached());
  options.site.costs.wave_seconds = GENERATE(1e-6, 1e-3, 3e-3, 1e-2);
  options.assignment = GENERATE(Assignment::mixed, Assignment::automatic);
  options.window = 64 * mi;
  const Plan unlimited = split_and_whole(4, options);
  options.memory_budget = unlimited.ranks()[0].arena_bytes + 40 * mi;
  const Plan limited = split_and_whole(4, options);
  options.window = limited.window();
  options.memory_budget = 0;
  REQUIRE(options.window < unlimited.window());
  const Plan alike = split_and_whole(4, options);
  CHECK(limited.hash() == alike.hash());
  CHECK(limited.assignment_reason() == alike.assignment_reason());
}

TEST_CASE("one rank that reads by mixed exchanges nothing, and says nothing of it",
          "[tensor_cost]") {
  CHECK(split_and_whole(1, mixed_at(cached())).assignment_reason().empty());
}
