// Plans in which every rank reads what it keeps.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/plan.hpp"
#include "safeshuffle/target.hpp"

#include "plan/assignment.hpp"
#include "plan/geometry.hpp"
#include "plan/proof.hpp"
#include "plan/schedule.hpp"
#include "plan/transfers.hpp"
#include "plan/waves.hpp"
#include "support/catalogs.hpp"
#include "support/catch.hpp"
#include "support/in_memory_load.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

constexpr std::uint64_t kib = 1024;

// Of 1 MiB each: "rows" split along dim 0, "columns" along dim 1, "both" replicated; "own", of 5
// bytes, on rank 1 only, in a file of its own.
Plan sliced(std::uint32_t world, std::uint64_t window = 4 << 20, std::uint32_t replicas = 1) {
  const Shape shape{1024, 1024};
  const Catalog catalog = make_catalog(
      {{{"rows", DType::U8, shape}, {"columns", DType::U8, shape}, {"both", DType::U8, shape}},
       {{"own", DType::U8, {5}}}});
  PlanOptions options;
  options.assignment = Assignment::sliced;
  options.window = window;
  options.replicas = replicas;
  return make_plan(catalog,
                   {cut(0, 1024), cut(1, 1024), whole(), whole(Placement::Kind::single, 1)}, world,
                   options);
}

// What the slabs of all waves have; none of them is too large.
std::uint64_t bytes_in_slabs(const Plan& plan, std::uint32_t rank) {
  plan::Slab slab;
  std::uint64_t bytes = 0;
  for (std::uint32_t wave = 0; wave < plan.waves(); ++wave) {
    plan::slab_at(plan.schedule(), wave, rank, slab);
    CHECK(plan::slab_bytes(slab) <= plan.ranks()[rank].slab_bytes);
    for (const plan::FileRange& range : slab.file_ranges) bytes += range.bytes;
  }
  return bytes;
}

}  // namespace

TEST_CASE("every rank reads what it keeps, and sends nothing", "[sliced]") {
  const Plan plan = sliced(4);
  CHECK_NOTHROW(plan.prove());
  CHECK(plan.assignment() == Assignment::sliced);
  CHECK(plan.needed_bytes() == 3 * 1024 * kib + 5);
  for (const RankSummary& rank : plan.ranks()) {
    const std::uint64_t own = rank.rank == 1 ? 5 : 0;
    CHECK(rank.read_bytes == (256 + 1024 + 1024) * kib + own);
    CHECK(rank.kept_bytes == (256 + 256 + 1024) * kib + own);
    CHECK(rank.sent_bytes + rank.received_bytes == 0);
    CHECK(rank.pack_bytes == 0);
    CHECK(rank.files ==
          (own == 0 ? std::vector<std::uint32_t>{0} : std::vector<std::uint32_t>{0, 1}));
    plan::TransferPlanner planner(plan.schedule(), rank.rank);
    for (std::uint32_t wave = 0; wave < plan.waves(); ++wave) {
      CHECK(planner.outgoing(wave).sends.empty());
      const plan::Incoming incoming = planner.incoming(wave);
      CHECK(incoming.receives.size() + incoming.broadcasts.size() == 0);
    }
  }
}

TEST_CASE("segments of which a rank keeps nothing are not read", "[sliced]") {
  const Plan plan = sliced(4, 64 * kib);
  CHECK_NOTHROW(plan.prove());
  CHECK(bytes_in_slabs(plan, 2) == (256 + 1024 + 1024) * kib);
}

TEST_CASE("all ranks read their slices of a large tensor at the same time", "[sliced]") {
  const std::uint64_t window = 64 * kib;
  PlanOptions options;
  options.assignment = Assignment::sliced;
  options.window = window;
  // 16 segments in one row, of which each rank keeps four; three rows of 4 segments.
  const auto [shape, axis, waves] = GENERATE(
      table<Shape, std::uint32_t, std::uint32_t>({{{1024, 1024}, 0, 4}, {{3, 256 * 1024}, 1, 3}}));
  const Plan plan =
      make_plan(make_catalog({{{"a", DType::U8, shape}}}), {cut(axis, shape[axis])}, 4, options);
  CHECK_NOTHROW(plan.prove());
  CHECK(plan.waves() == waves);
  for (std::uint32_t wave = 0; wave < plan.waves(); ++wave) {
    CHECK(plan::wave_bytes(plan.schedule(), wave) == 4 * window);
  }
}

TEST_CASE("the bytes that a rank reads are those of its slabs, whatever the window", "[sliced]") {
  // Rows of 1, 4 and 300 KiB, parts in the middle of them, and a tensor without elements.
  const Catalog catalog = make_catalog({{{"a", DType::U8, {1021, 1024}},
                                         {"b", DType::U8, {7, 4 * kib}},
                                         {"c", DType::U8, {5, 300 * kib}},
                                         {"d", DType::U8, {700 * kib}},
                                         {"e", DType::U8, {0, 12}}}});
  const std::vector<Placement> placements{cut(0, 1021, true), cut(1, 4 * kib), cut(1, 300 * kib),
                                          cut(0, 700 * kib, true), cut(1, 12)};
  PlanOptions options;
  options.assignment = Assignment::sliced;
  options.window = GENERATE(4U, 6U, 64U, 65U, 150U, 1024U) * kib;
  const Plan plan = make_plan(catalog, placements, 4, options);
  CAPTURE(options.window);
  CHECK_NOTHROW(plan.prove());
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    CAPTURE(rank);
    CHECK(plan.ranks()[rank].read_bytes == bytes_in_slabs(plan, rank));
  }
}

TEST_CASE("parts of large tensors arrive where they belong", "[sliced]") {
  // Shards of a row, of parts of rows, of several rows; shared by ranks; fused; composed of several
  // tensors, along the axis that is split and along another, with zeros at the end.
  const Catalog catalog = make_catalog({{{"a", DType::U8, {331, 1000}},
                                         {"b", DType::U16, {1, 100 * kib}},
                                         {"c", DType::U8, {3, 150 * kib}},
                                         {"d", DType::F4, {512, 512}}},
                                        {{"e", DType::U8, {300 * kib}},
                                         {"f", DType::U8, {100, 2000}},
                                         {"g", DType::U8, {60, 2000}},
                                         {"h", DType::U8, {40, 2000}},
                                         {"i", DType::U8, {64, 3000}},
                                         {"j", DType::U8, {200 * kib}}}});
  const auto target = [](std::uint32_t tensor, Placement placement) {
    return Target{tensor, std::move(placement), nullptr};
  };
  const auto composed = [](Shape shape, std::uint32_t axis, std::vector<Fill> fills) {
    const std::uint32_t first = fills.front().tensor;
    const std::string name = numbered("composed of ", first);
    return Target{first, cut(0, shape[0], true),
                  std::make_shared<const Composition>(
                      Composition{name, {}, std::move(shape), axis, std::move(fills)})};
  };
  const std::vector<Target> targets{
      target(0, cut(0, 331, true)),
      target(1, cut(1, 2, false, true)),
      target(2, fused(1, {100 * kib, 30 * kib, 20 * kib})),
      target(3, cut(0, 512)),
      target(4, cut(0, 300 * kib, true)),
      composed({200, 2000}, 0, {{5, 0, 0, 100}, {6, 0, 100, 60}, {7, 0, 160, 40}}),
      composed({64, 4000}, 1, {{8, 0, 0, 3000}, {Fill::zeros, 0, 3000, 1000}}),
      target(9, whole(Placement::Kind::single)),
  };
  PlanOptions options;
  options.assignment = Assignment::sliced;
  options.window = GENERATE(64U, 100U, 2048U) * kib;
  options.replicas = GENERATE(1U, 2U);
  const std::uint32_t world = GENERATE(2U, 4U, 8U);
  CAPTURE(options.window, options.replicas, world);
  const Plan plan = make_plan(catalog, targets, world, options);
  CHECK_NOTHROW(plan.prove());
  CHECK(InMemoryLoad(plan.schedule()).result_is_right());
}

TEST_CASE("what divides well is sliced, all else is striped", "[sliced]") {
  const auto mi = std::uint64_t{1} << 20;
  // In the order of files and offsets.
  const Catalog catalog = make_catalog({{{"rows", DType::U8, {4 * mi}},
                                         {"columns", DType::U8, {4, mi}},
                                         {"both", DType::U8, {4 * mi}},
                                         {"own", DType::U8, {mi}},
                                         {"small", DType::U8, {mi / 2}}}});
  PlanOptions options;
  options.assignment = Assignment::mixed;
  const Plan plan = make_plan(
      catalog,
      {cut(0, 4 * mi), cut(1, mi), whole(), whole(Placement::Kind::single, 1), cut(0, mi / 2)}, 4,
      options);
  CHECK_NOTHROW(plan.prove());
  CHECK(plan.assignment() == Assignment::mixed);
  CHECK(plan.schedule().sliced == std::vector<bool>{true, false, false, true, false});
  std::uint64_t read = 0;
  for (const RankSummary& rank : plan.ranks()) {
    CHECK(rank.sliced_bytes == mi + (rank.rank == 1 ? mi : 0));
    CHECK(rank.sliced_bytes + rank.sent_bytes + rank.received_bytes > mi);
    read += rank.read_bytes;
  }
  CHECK(read == plan.needed_bytes());
  CHECK(InMemoryLoad(plan.schedule()).result_is_right());
}

TEST_CASE("with replicas, slices would be read several times", "[sliced]") {
  PlanOptions options;
  options.assignment = Assignment::mixed;
  options.replicas = 2;
  const auto mi = std::uint64_t{1} << 20;
  const Plan plan =
      make_plan(make_catalog({{{"rows", DType::U8, {4 * mi}}}}), {cut(0, 4 * mi)}, 4, options);
  CHECK_NOTHROW(plan.prove());
  for (const RankSummary& rank : plan.ranks()) CHECK(rank.sliced_bytes == 0);
}

TEST_CASE("planning takes no longer with a small window", "[sliced]") {
  // 2^28 segments for each of 1024 ranks: one after the other, they would take hours.
  const Catalog catalog = make_catalog({{{"a", DType::U8, {1 << 20, 1 << 20}}}});
  PlanOptions options;
  options.assignment = Assignment::sliced;
  options.window = 4 * kib;
  const Plan plan = make_plan(catalog, {cut(0, 1 << 20)}, 1024, options);
  CHECK_NOTHROW(plan.prove());
  for (const RankSummary& rank : plan.ranks()) CHECK(rank.read_bytes == std::uint64_t{1} << 30);
}

TEST_CASE("a rank alone reads the same as round-robin", "[sliced]") {
  const Plan plan = sliced(2);
  PlanOptions options;
  options.assignment = Assignment::sliced;
  const Catalog catalog = make_catalog({{{"a", DType::U8, {100}}, {"b", DType::U8, {7, 9}}}});
  const std::vector<Placement> placements{cut(0, 100), cut(1, 9, true)};
  const Plan alone = make_plan(catalog, placements, 1, options);
  options.assignment = Assignment::round_robin;
  const Plan usual = make_plan(catalog, placements, 1, options);
  CHECK(alone.ranks()[0].read_bytes == usual.ranks()[0].read_bytes);
  CHECK(alone.waves() == usual.waves());
}

TEST_CASE("a broken sliced schedule is not proved", "[sliced]") {
  using plan::Schedule;
  const std::vector<std::function<void(Schedule&)>> faults{
      [](Schedule& s) { s.slices.pop_back(); },
      [](Schedule& s) { s.slices[0].tensor = 1; },
      [](Schedule& s) { s.slices.push_back(s.slices.back()); },
      [](Schedule& s) { s.reads[0].push_back(s.slices.back()); },
      [](Schedule& s) { s.reads.emplace_back(); },
      [](Schedule& s) { s.slices[1].wave += 1; },
      [](Schedule& s) { s.exchanged_waves = 1; },
      [](Schedule& s) { s.exchanged_waves = s.waves + 1; },
      [](Schedule& s) { s.sliced[0] = false; },
      [](Schedule& s) { s.sliced.pop_back(); },
      [](Schedule& s) { s.ranks[2].slab_bytes /= 4; },
      [](Schedule& s) { s.ranks[3].arena_bytes -= 1; },
      [](Schedule& s) { s.arena_order.pop_back(); },
      [](Schedule& s) { s.cuts[0].row_bytes /= 2; },
  };
  for (std::size_t i = 0; i < faults.size(); ++i) {
    Schedule schedule = sliced(4).schedule();
    CHECK_NOTHROW(plan::prove(schedule));
    faults[i](schedule);
    CAPTURE(i);
    CHECK_THROWS_AS(plan::prove(schedule), PlanError);
  }
}

TEST_CASE("a broken schedule of slices in several waves is not proved", "[sliced]") {
  using plan::Schedule;
  const std::vector<std::function<void(Schedule&)>> faults{
      [](Schedule& s) { s.slices[0].segments -= 1; },
      [](Schedule& s) { s.slices[0].segments += 1; },
      [](Schedule& s) { s.slices[0].segments = 0; },
      [](Schedule& s) { s.slices[0].first_segment = 1; },
      [](Schedule& s) { s.slices[1].segments -= 1; },
      [](Schedule& s) { s.slices[1].wave -= 1; },
  };
  for (std::size_t i = 0; i < faults.size(); ++i) {
    Schedule schedule = sliced(4, 64 * kib).schedule();
    CHECK_NOTHROW(plan::prove(schedule));
    faults[i](schedule);
    CAPTURE(i);
    CHECK_THROWS_AS(plan::prove(schedule), PlanError);
  }
}

TEST_CASE("a broken schedule of slices and exchanges is not proved", "[sliced]") {
  using plan::Schedule;
  // Of the tensors, "rows" and "own" are sliced; "columns" and "both" are read by ranks 0 and 1.
  const auto mixed = [] {
    Schedule schedule = sliced(2).schedule();
    schedule.assignment = Assignment::mixed;
    schedule.sliced = {true, false, false, true};
    plan::fill(schedule, plan::find_geometries(schedule), schedule.window);
    return schedule;
  };
  const std::vector<std::function<void(Schedule&)>> faults{
      [](Schedule& s) { s.slices.push_back(s.reads[0][0]); },
      [](Schedule& s) { s.reads[1].push_back(s.slices[0]); },
      [](Schedule& s) { s.reads[0].clear(); },
      [](Schedule& s) { s.slices.clear(); },
      [](Schedule& s) { s.exchanged_waves -= 1; },
      [](Schedule& s) { s.exchanged_waves += 1; },
      [](Schedule& s) { s.sliced[0] = false; },
      [](Schedule& s) { s.sliced[1] = true; },
      [](Schedule& s) { std::swap(s.slices[0].wave, s.reads[0][0].wave); },
      [](Schedule& s) { s.ranks[0].pack_bytes = 0; },
  };
  for (std::size_t i = 0; i < faults.size(); ++i) {
    Schedule schedule = mixed();
    CHECK_NOTHROW(plan::prove(schedule));
    faults[i](schedule);
    CAPTURE(i);
    CHECK_THROWS_AS(plan::prove(schedule), PlanError);
  }
}

TEST_CASE("the memory of every replica is proved", "[sliced]") {
  using plan::Schedule;
  const std::vector<std::function<void(RankSummary&)>> faults{
      [](RankSummary& rank) { rank.slab_bytes = 0; },
      [](RankSummary& rank) { rank.arena_bytes -= 256; },
  };
  for (const std::uint64_t window : {4096 * kib, 64 * kib}) {
    for (const auto& fault : faults) {
      Schedule schedule = sliced(4, window, 2).schedule();
      CHECK_NOTHROW(plan::prove(schedule));
      fault(schedule.ranks[3]);
      CAPTURE(window);
      CHECK_THROWS_AS(plan::prove(schedule), PlanError);
    }
  }
}
