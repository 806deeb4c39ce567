// The proof checker: what it accepts is right, and every kind of damage is found.
#include "plan/proof.hpp"

#include <functional>
#include <random>

#include "safeshuffle/error.hpp"
#include "safeshuffle/plan.hpp"

#include "plan/schedule.hpp"
#include "support/catalogs.hpp"
#include "support/catch.hpp"
#include "support/in_memory_load.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;
using plan::Schedule;

namespace {

PlanOptions small_windows() {
  PlanOptions options;
  options.window = 4096;
  return options;
}

// Two files on two ranks: cut by rows, cut by columns, replicated, one tensor of several chunks.
Schedule sound_schedule() {
  const Catalog catalog = make_catalog({{{"rows", DType::F16, {8, 30}}, {"all", DType::F32, {50}}},
                                        {{"columns", DType::U8, {7, 10}},
                                         {"bias", DType::BF16, {9}},
                                         {"big", DType::F32, {64, 48}}}});
  return make_plan(catalog, {cut(0, 8), whole(), cut(1, 10), whole(), cut(0, 64)}, 2,
                   small_windows())
      .schedule();
}

struct Damage {
  const char* what;
  std::function<void(Schedule&)> inflict;
};

const std::vector<Damage>& damages() {
  static const std::vector<Damage> list{
      {"a tensor moved in an arena", [](Schedule& s) { s.arena_offsets[1][0] += 256; }},
      {"two tensors swapped in an arena",
       [](Schedule& s) { std::swap(s.arena_offsets[0][0], s.arena_offsets[0][4]); }},
      {"a misaligned tensor", [](Schedule& s) { s.arena_offsets[0][4] += 1; }},
      {"a tensor with no place", [](Schedule& s) { s.arena_offsets[0][0] = plan::not_held; }},
      {"an arena that is too small", [](Schedule& s) { s.ranks[0].arena_bytes -= 256; }},
      {"a pack buffer that is too small", [](Schedule& s) { s.ranks[0].pack_bytes = 0; }},
      {"a slab that is too small", [](Schedule& s) { s.ranks[1].slab_bytes = 64; }},
      {"a piece never read", [](Schedule& s) { s.slabs[0].pieces.pop_back(); }},
      {"a piece read twice",
       [](Schedule& s) { s.slabs[0].pieces.push_back(s.slabs[0].pieces.back()); }},
      {"a slab never read", [](Schedule& s) { s.slabs[1] = {}; }},
      {"a slab read twice", [](Schedule& s) { s.slabs.back() = s.slabs[s.slabs.size() - 3]; }},
      {"a shortened piece", [](Schedule& s) { s.slabs[0].pieces[0].end -= 2; }},
      {"a piece beyond its tensor", [](Schedule& s) { s.slabs[0].pieces[0].end += 2; }},
      {"a piece of the wrong tensor", [](Schedule& s) { s.slabs[0].pieces[0].tensor = 1; }},
      {"a piece of no tensor", [](Schedule& s) { s.slabs[0].pieces[0].tensor = 99; }},
      {"a piece at the wrong place of the slab",
       [](Schedule& s) { s.slabs[0].pieces[0].slab_offset += 16; }},
      {"a shifted file range", [](Schedule& s) { s.slabs[0].file_ranges[0].file_offset += 4096; }},
      {"a shortened file range", [](Schedule& s) { s.slabs[0].file_ranges[0].bytes -= 1; }},
      {"a file range of another file", [](Schedule& s) { s.slabs[0].file_ranges[0].file = 1; }},
      {"a file range of no file", [](Schedule& s) { s.slabs[0].file_ranges[0].file = 7; }},
      {"an incongruent slab offset",
       [](Schedule& s) {
         s.slabs[0].file_ranges[0].slab_offset += 1;
         for (plan::Piece& piece : s.slabs[0].pieces) piece.slab_offset += 1;
       }},
      {"an impossible conversion", [](Schedule& s) { s.dtypes[2] = DType::F16; }},
      {"a placement changed after planning",
       [](Schedule& s) { s.placements[1] = whole(Placement::Kind::dropped); }},
      {"a cut of another axis", [](Schedule& s) { s.placements[2] = cut(0, 7, true); }},
      {"a stale cut", [](Schedule& s) { s.cuts[0].row_bytes *= 2; }},
      {"a missing wave", [](Schedule& s) { s.waves -= 1; }},
      {"a table that is too short", [](Schedule& s) { s.dtypes.pop_back(); }},
  };
  return list;
}

// One random change to one number somewhere in the schedule.
void mutate(Schedule& schedule, std::mt19937& random) {
  const auto pick = [&](auto& list) -> auto& {
    return list[random() % list.size()];
  };
  static constexpr std::uint64_t deltas[] = {1, 2, 16, 64, 256, 4096};
  const std::uint64_t delta = deltas[random() % 6] * (random() % 2 == 0 ? 1 : ~std::uint64_t{0});
  plan::Slab& slab = pick(schedule.slabs);
  switch (random() % 9) {
    case 0:
      pick(pick(schedule.arena_offsets)) += delta;
      break;
    case 1:
      std::swap(pick(pick(schedule.arena_offsets)), pick(pick(schedule.arena_offsets)));
      break;
    case 2:
      if (!slab.pieces.empty()) pick(slab.pieces).begin += delta;
      break;
    case 3:
      if (!slab.pieces.empty()) pick(slab.pieces).end += delta;
      break;
    case 4:
      if (!slab.pieces.empty()) pick(slab.pieces).slab_offset += delta;
      break;
    case 5:
      if (!slab.file_ranges.empty()) pick(slab.file_ranges).file_offset += delta;
      break;
    case 6:
      if (!slab.file_ranges.empty()) pick(slab.file_ranges).slab_offset += delta;
      break;
    case 7:
      std::swap(slab, pick(schedule.slabs));
      break;
    default:
      if (!slab.pieces.empty()) std::swap(pick(slab.pieces), pick(slab.pieces));
      break;
  }
}

}  // namespace

TEST_CASE("the undamaged schedule is sound, by proof and by simulation", "[proof]") {
  const Schedule schedule = sound_schedule();
  CHECK_NOTHROW(plan::prove(schedule));
  CHECK(InMemoryLoad(schedule).result_is_right());
}

TEST_CASE("every damage is found", "[proof]") {
  for (const Damage& damage : damages()) {
    Schedule schedule = sound_schedule();
    damage.inflict(schedule);
    INFO(damage.what);
    CHECK_THROWS_AS(plan::prove(schedule), PlanError);
  }
}

TEST_CASE("a finding names the tensor", "[proof]") {
  Schedule schedule = sound_schedule();
  schedule.arena_offsets[1][2] += 1;
  try {
    plan::prove(schedule);
    FAIL("the damage was not found");
  } catch (const PlanError& error) {
    CHECK(error.record().tensor == "columns");
  }
}

TEST_CASE("random plans do what the placements say", "[proof]") {
  const auto seed = GENERATE(range(100, 140));
  const RandomModel model = random_model(static_cast<std::uint32_t>(seed));
  for (const std::uint32_t world : {1U, 2U, 4U, 5U}) {
    for (const Assignment assignment : {Assignment::round_robin, Assignment::striped}) {
      PlanOptions options = small_windows();
      options.assignment = assignment;
      const Plan plan = make_plan(model.catalog, model.placements, world, options);
      CAPTURE(seed, world, static_cast<int>(assignment));
      CHECK(InMemoryLoad(plan.schedule()).result_is_right());
    }
  }
}

TEST_CASE("whatever the proof accepts after random damage still loads right", "[proof]") {
  const auto seed = GENERATE(range(0, 20));
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  const RandomModel model = random_model(static_cast<std::uint32_t>(seed) + 200);
  const Schedule sound = make_plan(model.catalog, model.placements, 3, small_windows()).schedule();
  if (sound.slabs.empty()) return;
  int found = 0;
  for (int i = 0; i < 100; ++i) {
    Schedule schedule = sound;
    mutate(schedule, random);
    try {
      plan::prove(schedule);
    } catch (const PlanError&) {
      ++found;
      continue;
    }
    CAPTURE(seed, i);
    CHECK(InMemoryLoad(schedule).result_is_right());
  }
  CHECK(found > 10);
}
