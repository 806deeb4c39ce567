// Targets composed of several stored tensors, of parts of them, and of zeros: planning, proof, and
// a load in memory against a naive slicer.
#include <functional>
#include <memory>

#include "safeshuffle/error.hpp"
#include "safeshuffle/plan.hpp"

#include "plan/proof.hpp"
#include "plan/schedule.hpp"
#include "support/catalogs.hpp"
#include "support/catch.hpp"
#include "support/failure.hpp"
#include "support/in_memory_load.hpp"
#include "support/random_slices.hpp"
#include "support/random_targets.hpp"
#include "support/sanitizers.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;
using plan::Schedule;

namespace {

PlanOptions small_windows(std::uint64_t window = 4096) {
  PlanOptions options;
  options.assignment = Assignment::round_robin;
  options.window = window;
  return options;
}

std::uint64_t sum_of(const Plan& plan, std::uint64_t RankSummary::*bytes) {
  std::uint64_t sum = 0;
  for (const RankSummary& rank : plan.ranks()) sum += rank.*bytes;
  return sum;
}

Target composed(std::string name, Shape shape, std::uint32_t axis, std::vector<Fill> fills,
                Placement placement = whole()) {
  const std::uint32_t first = fills.empty() ? 0 : fills.front().tensor;
  return {first, std::move(placement),
          std::make_shared<const Composition>(
              Composition{std::move(name), {}, std::move(shape), axis, std::move(fills)})};
}

}  // namespace

TEST_CASE("random targets: plans are proved and loads are right", "[composition]") {
  const auto batch = GENERATE(range(0, 100));
  struct Group {
    std::uint32_t world;
    std::uint32_t replicas;
  };
  static constexpr Group groups[] = {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {8, 1},
                                     {2, 2}, {4, 2}, {6, 2}, {6, 3}, {8, 2}, {8, 4}};
  for (int i = 0; i < testing::cases(100); ++i) {
    const auto seed = static_cast<std::uint32_t>(batch * 100 + i);
    const RandomTargets model = random_targets(seed);
    const auto [world, replicas] = groups[seed % std::size(groups)];
    PlanOptions options = small_windows();
    options.assignment = seed % 5 == 0   ? Assignment::striped
                         : seed % 5 == 1 ? Assignment::sliced
                         : seed % 5 == 2 ? Assignment::balanced
                                         : Assignment::round_robin;
    options.order = seed % 5 < 2 && seed % 3 == 0 ? Order::layer : Order::file;
    options.replicas = replicas;
    CAPTURE(seed, world, replicas);
    const Plan plan = make_plan(model.catalog, model.targets, world, options);
    CHECK_NOTHROW(plan.prove());
    const plan::InPlaceRule in_place{.smallest = seed % 40, .congruent = seed % 7 == 0};
    CHECK(InMemoryLoad(plan.schedule(), in_place).result_is_right());
    const Schedule mixed = with_random_slices(plan, seed);
    CHECK_NOTHROW(plan::prove(mixed));
    CHECK(InMemoryLoad(mixed).result_is_right());
    CHECK(sum_of(plan, &RankSummary::sent_bytes) == sum_of(plan, &RankSummary::received_bytes));
  }
}

namespace {

// q, k and v of 8, 4 and 4 rows, in two files; the rows of "both" are two targets; "embed" is
// padded from 6 to 8 rows.
Schedule sound_schedule() {
  const Catalog catalog = make_catalog(
      {{{"k", DType::F16, {4, 10}}, {"q", DType::F16, {8, 10}}, {"embed", DType::F32, {6, 5}}},
       {{"v", DType::F16, {4, 10}}, {"both", DType::U8, {6, 7}}}});
  // In the order of the catalog: k, q, embed, v, both.
  return make_plan(
             catalog,
             {composed("qkv", {16, 10}, 0, {{1, 0, 0, 8}, {0, 0, 8, 4}, {3, 0, 12, 4}},
                       fused(0, {8, 4, 4})),
              composed("first", {2, 7}, 0, {{4, 0, 0, 2}}, cut(0, 2)),
              composed("second", {4, 7}, 0, {{4, 2, 0, 4}}),
              composed("padded", {8, 5}, 0, {{2, 0, 0, 6}, {Fill::zeros, 0, 6, 2}}, cut(0, 8))},
             2, small_windows())
      .schedule();
}

// The same with another composition of a target.
void recompose(Schedule& schedule, std::size_t target,
               const std::function<void(Composition&)>& change) {
  Composition composition = *schedule.targets[target].composition;
  change(composition);
  schedule.targets[target].composition =
      std::make_shared<const Composition>(std::move(composition));
}

struct Damage {
  const char* what;
  std::function<void(Schedule&)> inflict;
};

const std::vector<Damage>& damages() {
  static const std::vector<Damage> list{
      {"a part that should land received in place", [](Schedule& s) { s.lands[0] = false; }},
      {"two parts swapped",
       [](Schedule& s) {
         recompose(s, 0, [](Composition& c) { std::swap(c.fills[1].tensor, c.fills[2].tensor); });
       }},
      {"a gap",
       [](Schedule& s) { recompose(s, 0, [](Composition& c) { c.fills[1].length = 3; }); }},
      {"a larger target",
       [](Schedule& s) { recompose(s, 3, [](Composition& c) { c.shape[0] = 9; }); }},
      {"more than the tensor has",
       [](Schedule& s) { recompose(s, 2, [](Composition& c) { c.fills[0].source_begin = 3; }); }},
      {"an unknown tensor",
       [](Schedule& s) { recompose(s, 0, [](Composition& c) { c.fills[2].tensor = 9; }); }},
      {"an arena that is too small", [](Schedule& s) { s.ranks[1].arena_bytes -= 256; }},
      {"a landing buffer that is too small", [](Schedule& s) { s.ranks[0].landing_bytes -= 256; }},
      {"a target in no arena", [](Schedule& s) { s.arena_order.pop_back(); }},
      {"a use that is missing", [](Schedule& s) { s.uses.pop_back(); }},
  };
  return list;
}

}  // namespace

TEST_CASE("a known composition: what lands, what arrives in place", "[composition]") {
  const Schedule schedule = sound_schedule();
  CHECK_NOTHROW(plan::prove(schedule));
  CHECK(InMemoryLoad(schedule).result_is_right());
  CHECK(schedule.lands == std::vector<bool>{true, true, false, true, true});
  CHECK(schedule.ranks[0].landing_bytes > 0);
  // Half of q, k, v (16 x 10 F16), half of first, all of second, 4 rows of padded.
  CHECK(schedule.ranks[0].kept_bytes == 160 + 7 + 28 + 80);
}

TEST_CASE("every damage to a composition is found", "[composition]") {
  for (const Damage& damage : damages()) {
    Schedule schedule = sound_schedule();
    damage.inflict(schedule);
    INFO(damage.what);
    CHECK_THROWS_AS(plan::prove(schedule), PlanError);
  }
}

TEST_CASE("compositions that cannot be are refused, naming the target", "[composition]") {
  const Catalog catalog = make_catalog({{{"a", DType::F16, {4, 6}},
                                         {"b", DType::F32, {4, 6}},
                                         {"c", DType::F16, {4, 5}},
                                         {"d", DType::F16, {24}},
                                         {"e", DType::F4, {2, 3}},
                                         {"f", DType::F4, {2, 3}}}});
  const auto cause = [&](const Target& target) {
    const ErrorRecord record = failure<PlanError>([&] { make_plan(catalog, {target}, 2).prove(); });
    CHECK(record.tensor == (target.composition ? "x" : "a"));
    return record.cause;
  };
  CHECK(cause(composed("x", {8, 6}, 0, {{0, 0, 0, 4}, {1, 0, 4, 4}})) ==
        "'b' has another type than 'a'");
  CHECK(cause(composed("x", {8, 6}, 0, {{0, 0, 0, 4}, {2, 0, 4, 4}})) == "'c' has another shape");
  CHECK(cause(composed("x", {8, 6}, 0, {{0, 0, 0, 4}, {3, 0, 4, 4}})) ==
        "'d' has another number of dimensions");
  CHECK(cause(composed("x", {5, 6}, 0, {{0, 0, 0, 5}})) == "it needs more of 'a' than there is");
  CHECK(cause(composed("x", {4, 6}, 2, {{0, 0, 0, 4}})) == "it has no such axis to compose along");
  CHECK(cause(composed("x", {6, 6}, 0, {{0, 0, 0, 4}})) == "its parts are not all of it");
  CHECK(cause(composed("x", {8, 6}, 0, {{0, 0, 0, 4}, {0, 0, 5, 3}})) ==
        "its parts leave a gap, or overlap");
  CHECK(cause(composed("x", {4, 6}, 0, {{0, 0, 0, 4}, {0, 0, 4, 0}})) ==
        "one of its parts is empty");
  CHECK(cause(composed("x", {2, 6}, 1, {{4, 0, 0, 3}, {5, 0, 3, 3}})) ==
        "it is composed of parts that end inside a byte");
}

TEST_CASE("zeros that end inside a byte are refused", "[composition]") {
  const Catalog catalog = make_catalog({{{"a", DType::F4, {2}}}});
  const Target padded = composed("x", {8}, 0, {{0, 0, 0, 2}, {Fill::zeros, 0, 2, 6}}, cut(0, 8));
  CHECK_NOTHROW(make_plan(catalog, {padded}, 4).prove());
  CHECK(failure<PlanError>([&] {
          make_plan(catalog, {padded}, 8).prove();
        }).cause.find("inside a byte") != std::string::npos);
  const Target thirds =
      composed("x", {8}, 0, {{0, 0, 0, 2}, {Fill::zeros, 0, 2, 6}}, cut(0, 8, true));
  CHECK(failure<PlanError>([&] { make_plan(catalog, {thirds}, 3).prove(); }).cause ==
        "it is composed of parts that end inside a byte");
}

TEST_CASE("targets that divide a tensor in ways that cannot be unpacked are refused",
          "[composition]") {
  const Catalog catalog = make_catalog({{{"a", DType::F16, {4, 6}}, {"b", DType::F16, {4, 6}}}});
  const Target joined =
      composed("x", {4, 12}, 1, {{0, 0, 0, 6}, {1, 0, 6, 6}}, whole(Placement::Kind::single, 0));
  const Target halves{0, cut(0, 4), nullptr, nullptr};
  CHECK_NOTHROW(make_plan(catalog, {joined, halves}, 2).prove());
  const Target split = composed("y", {4, 12}, 1, {{0, 0, 0, 6}, {1, 0, 6, 6}}, cut(0, 2, false));
  Target uneven = halves;
  uneven.placement = fused(0, {2, 2});
  const ErrorRecord record = failure<PlanError>([&] {
    make_plan(catalog, {split, uneven}, 2).prove();
  });
  CHECK(record.tensor == "a");
  CHECK(record.file == "file-0");
  CHECK(record.cause == "its targets divide it in different ways");
}

TEST_CASE("a tensor with thousands of targets takes no time per pair of them", "[composition]") {
  constexpr std::uint32_t experts = 100'000;
  const Catalog catalog = make_catalog({{{"stacked", DType::BF16, {experts, 8, 8}}}});
  std::vector<Target> targets;
  for (std::uint32_t i = 0; i < experts; ++i) {
    targets.push_back(composed(numbered("expert", i), {1, 8, 8}, 0, {{0, i, 0, 1}}));
  }
  CHECK_NOTHROW(make_plan(catalog, targets, 2).prove());
}

TEST_CASE("sizes that overflow, and axes that do not exist, are refused", "[composition]") {
  const Catalog catalog =
      make_catalog({{{"a", DType::F16, {4, 6}}, {"e", DType::F4, {2}}, {"z", DType::F32, {4, 0}}}});
  constexpr std::uint64_t huge = ~std::uint64_t{0};
  const auto cause = [&](std::vector<Target> targets) {
    return failure<PlanError>([&] { make_plan(catalog, std::move(targets), 2); }).cause;
  };
  // The lengths add up to the extent, but for a multiple of 2^64.
  CHECK(cause({composed("x", {4, 6}, 0,
                        {{0, 0, 0, 4}, {Fill::zeros, 0, 4, huge}, {Fill::zeros, 0, 3, 1}})}) ==
        "its parts are more than all of it");
  const auto padded = [](std::string name, std::uint64_t rows) {
    return composed(std::move(name), {4 + rows, 6}, 0, {{0, 0, 0, 4}, {Fill::zeros, 0, 4, rows}});
  };
  CHECK(cause({padded("x", huge / 2)}) == "it has more bytes than can be counted");
  CHECK(cause({padded("x", huge / 150), padded("y", huge / 150)}) ==
        "with the targets before, it has more bytes than can be counted");
  CHECK(cause({composed("x", {3}, 0, {{1, 0, 0, 2}, {Fill::zeros, 0, 2, 1}})}) ==
        "it ends inside a byte");
  CHECK(cause({composed("x", {4, 6}, 0, {{0, 0, 0, 4}}, cut(2, 2))}) ==
        "it is split along axis 2, but has 2 dimensions");
  CHECK(cause({{0, cut(7, 2), nullptr, nullptr}}) ==
        "it is split along axis 7, but has 2 dimensions");
  CHECK(cause({{3, whole(), nullptr, nullptr}}) == "it is filled from an unknown tensor");
  CHECK(cause({composed("x", {4, 6}, 0, {{Fill::zeros, 0, 0, 4}})}) ==
        "it is filled from an unknown tensor");
  CHECK(cause({composed("x", {0, 6}, 0, {})}) ==
        "it is not filled from the tensor that it is said to be");
}

TEST_CASE("no two targets that a rank holds have the same name", "[composition]") {
  const Catalog catalog = make_catalog({{{"a", DType::F16, {4, 6}}, {"b", DType::F16, {4, 6}}}});
  const auto named = [](std::string name, std::vector<std::string> aliases, Placement placement) {
    return Target{0, std::move(placement),
                  std::make_shared<const Composition>(
                      Composition{std::move(name), std::move(aliases), {2, 6}, 0, {{0, 0, 0, 2}}})};
  };
  const auto single = [](std::uint32_t rank) { return whole(Placement::Kind::single, rank); };
  const auto refused = [&](const std::vector<Target>& targets) {
    const ErrorRecord record = failure<PlanError>([&] { make_plan(catalog, targets, 4); });
    CHECK(record.file == (catalog.find(record.tensor) != nullptr ? "file-0" : ""));
    return record.tensor + ": " + record.cause;
  };
  const Target a{0, whole(), nullptr, nullptr};
  const std::string on_0 = ": rank 0 would hold two tensors of this name";
  CHECK(refused({a, a}) == "a" + on_0);
  CHECK(refused({named("x", {}, whole()), named("x", {}, cut(0, 2, true))}) == "x" + on_0);
  CHECK(refused({a, named("x", {"y", "a"}, whole())}) == "a" + on_0);
  CHECK(refused({named("x", {"y"}, whole()), named("z", {"y"}, single(2))}) ==
        "y: rank 2 would hold two tensors of this name");
  CHECK(refused({named("x", {}, single(1)), named("x", {}, single(3)),
                 named("x", {}, single(3))}) == "x: rank 3 would hold two tensors of this name");
  CHECK(refused({named("x", {"x"}, single(0))}) == "x" + on_0);
  CHECK_NOTHROW(make_plan(catalog,
                          {named("x", {"y"}, single(0)),
                           named("x", {}, single(1)),
                           named("y", {"x"}, single(2)),
                           {1, single(3), nullptr, nullptr},
                           named("b", {}, single(0)),
                           named("x", {}, single(3)),
                           named("x", {}, whole(Placement::Kind::dropped))},
                          4)
                    .prove());
}

TEST_CASE("a part of a tensor along one axis cannot be split along another", "[composition]") {
  const Catalog catalog = make_catalog({{{"a", DType::F16, {4, 6}}}});
  const Target target = composed("x", {2, 6}, 0, {{0, 0, 0, 2}}, cut(1, 6));
  CHECK(failure<PlanError>([&] { make_plan(catalog, {target}, 2); }).cause ==
        "target 'x' takes a part of it along axis 0 and splits it along axis 1; both must be the "
        "same axis");
}
