// Plans in which every rank reads what it keeps.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/plan.hpp"

#include "plan/proof.hpp"
#include "plan/schedule.hpp"
#include "plan/transfers.hpp"
#include "plan/waves.hpp"
#include "support/catalogs.hpp"
#include "support/catch.hpp"

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
      [](Schedule& s) { s.reads[0].pop_back(); },
      [](Schedule& s) { s.reads[0][0].tensor = 1; },
      [](Schedule& s) { s.reads[0].push_back(s.reads[0].back()); },
      [](Schedule& s) { s.reads.emplace_back(); },
      [](Schedule& s) { s.reads[0][1].wave += 1; },
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
