// The proof checker: what it accepts is right, and every kind of damage is found.
#include "plan/proof.hpp"

#include <algorithm>
#include <functional>
#include <random>
#include <stdexcept>

#include "safeshuffle/error.hpp"
#include "safeshuffle/plan.hpp"

#include "plan/schedule.hpp"
#include "support/catalogs.hpp"
#include "support/catch.hpp"
#include "support/in_memory_load.hpp"
#include "support/sanitizers.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;
using plan::Schedule;

namespace {

PlanOptions small_windows() {
  PlanOptions options;
  options.assignment = Assignment::round_robin;
  options.window = 4096;
  return options;
}

// Two files on two ranks: cut by rows, cut by columns, replicated, one tensor of several segments.
// Rank 0 reads tensors 0 to 2, rank 1 tensors 3 and 4 in its wave 0, then the three segments of 5.
Schedule sound_schedule() {
  const Catalog catalog = make_catalog(
      {{{"rows", DType::F16, {8, 30}}, {"more", DType::F16, {4, 10}}, {"all", DType::F32, {50}}},
       {{"columns", DType::U8, {7, 10}},
        {"bias", DType::BF16, {9}},
        {"big", DType::F32, {64, 48}}}});
  return make_plan(catalog, {cut(0, 8), cut(0, 4), whole(), cut(1, 10), whole(), cut(0, 64)}, 2,
                   small_windows())
      .schedule();
}

struct Damage {
  const char* what;
  std::function<void(Schedule&)> inflict;
};

const std::vector<Damage>& damages() {
  static const std::vector<Damage> list{
      {"two tensors of a run swapped in the arenas",
       [](Schedule& s) { std::swap(s.arena_order[0], s.arena_order[1]); }},
      {"a run torn apart in the arenas",
       [](Schedule& s) {
         std::rotate(s.arena_order.begin(), s.arena_order.begin() + 1, s.arena_order.end());
       }},
      {"a tensor with no place", [](Schedule& s) { s.arena_order.pop_back(); }},
      {"a tensor with two places", [](Schedule& s) { s.arena_order.push_back(3); }},
      {"an unknown tensor in the arenas", [](Schedule& s) { s.arena_order[0] = 99; }},
      {"an arena that is too small", [](Schedule& s) { s.ranks[0].arena_bytes -= 256; }},
      {"a pack buffer that is too small", [](Schedule& s) { s.ranks[0].pack_bytes = 0; }},
      {"a pack buffer too small for segments", [](Schedule& s) { s.ranks[1].pack_bytes -= 256; }},
      {"a slab that is too small", [](Schedule& s) { s.ranks[0].slab_bytes = 64; }},
      {"a slab too small for segments", [](Schedule& s) { s.ranks[1].slab_bytes = 4096; }},
      {"a tensor never read", [](Schedule& s) { s.reads[0].pop_back(); }},
      {"a tensor read twice",
       [](Schedule& s) {
         s.reads[0].push_back(s.reads[0].back());
         s.reads[0].back().wave += 1;
       }},
      {"a tensor read by two ranks",
       [](Schedule& s) {
         s.reads[0].push_back({4, 0, 1, 1});
       }},
      {"a rank that reads nothing", [](Schedule& s) { s.reads[0].clear(); }},
      {"a segment never read", [](Schedule& s) { s.reads[1].back().segments -= 1; }},
      {"a segment too many", [](Schedule& s) { s.reads[1].back().segments += 1; }},
      {"segments moved", [](Schedule& s) { s.reads[1].back().first_segment += 1; }},
      {"segments out of all bounds", [](Schedule& s) { s.reads[1].back().first_segment = ~0U; }},
      {"no segment read", [](Schedule& s) { s.reads[1].back().segments = 0; }},
      {"a segment read by two ranks",
       [](Schedule& s) {
         s.reads[0].push_back({5, 1, 1, 1});
       }},
      {"a segment skipped between ranks",
       [](Schedule& s) {
         s.reads[1].back().segments = 1;
         s.reads[0].push_back({5, 2, 1, 1});
       }},
      {"the wrong tensor read", [](Schedule& s) { s.reads[0][0].tensor = 1; }},
      {"an unknown tensor read", [](Schedule& s) { s.reads[0][0].tensor = 99; }},
      {"a segment in a wave with others", [](Schedule& s) { s.reads[1].back().wave = 0; }},
      {"waves that do not ascend", [](Schedule& s) { s.reads[0][0].wave = 1; }},
      {"a read after the last wave", [](Schedule& s) { s.reads[1].back().wave += 1; }},
      {"two tensors of a slab read in another order",
       [](Schedule& s) { std::swap(s.reads[0][0], s.reads[0][1]); }},
      {"a smaller window", [](Schedule& s) { s.window = 2048; }},
      {"a larger window", [](Schedule& s) { s.window = 8192; }},
      {"an impossible conversion", [](Schedule& s) { s.dtypes[3] = DType::F16; }},
      {"another conversion", [](Schedule& s) { s.dtypes[0] = DType::F32; }},
      {"a placement changed after planning",
       [](Schedule& s) { s.targets[2].placement = whole(Placement::Kind::dropped); }},
      {"a tensor moved to one rank after planning",
       [](Schedule& s) { s.targets[2].placement = whole(Placement::Kind::single, 1); }},
      {"a tensor placed on an unknown rank",
       [](Schedule& s) { s.targets[2].placement = whole(Placement::Kind::single, 2); }},
      {"a cut of another axis", [](Schedule& s) { s.targets[3].placement = cut(0, 7, true); }},
      {"a tensor that lands for nothing", [](Schedule& s) { s.lands[0] = true; }},
      {"a use too many", [](Schedule& s) { s.uses.push_back(s.uses.back()); }},
      {"a use of another tensor", [](Schedule& s) { s.first_use[1] = 0; }},
      {"a stale cut", [](Schedule& s) { s.cuts[0].row_bytes *= 2; }},
      {"a missing wave", [](Schedule& s) { s.waves -= 1; }},
      {"a table that is too short", [](Schedule& s) { s.dtypes.pop_back(); }},
      {"a missing reader", [](Schedule& s) { s.reads.pop_back(); }},
  };
  return list;
}

// One random change to one number somewhere in the schedule.
void mutate(Schedule& schedule, std::mt19937& random) {
  const auto pick = [&](auto& list) -> auto& {
    return list[random() % list.size()];
  };
  const auto nudge = [&](std::uint32_t& number) {
    static constexpr std::uint32_t deltas[] = {1, 2, ~0U, ~1U};
    number += deltas[random() % 4];
  };
  static const std::vector<std::uint64_t> sizes{64, 256, 4096};
  std::vector<plan::Read>& reads = pick(schedule.reads);
  RankSummary& rank = pick(schedule.ranks);
  switch (random() % 12) {
    case 0:
      if (!reads.empty()) nudge(pick(reads).tensor);
      break;
    case 1:
      if (!reads.empty()) nudge(pick(reads).first_segment);
      break;
    case 2:
      if (!reads.empty()) nudge(pick(reads).segments);
      break;
    case 3:
      if (!reads.empty()) nudge(pick(reads).wave);
      break;
    case 4:
      if (!reads.empty()) std::swap(pick(reads), pick(reads));
      break;
    case 5: {
      if (reads.empty()) break;
      const plan::Read moved = reads.back();
      reads.pop_back();
      pick(schedule.reads).push_back(moved);
      break;
    }
    case 6:
      std::swap(reads, pick(schedule.reads));
      break;
    case 7:
      std::swap(pick(schedule.arena_order), pick(schedule.arena_order));
      break;
    case 8:
      pick(schedule.arena_order) = pick(schedule.arena_order);
      break;
    case 9:
      rank.pack_bytes -= std::min(rank.pack_bytes, pick(sizes));
      break;
    case 10:
      rank.arena_bytes -= std::min(rank.arena_bytes, pick(sizes));
      break;
    default:
      rank.slab_bytes -= std::min(rank.slab_bytes, pick(sizes));
      break;
  }
}

// What the proof finds; empty if nothing.
std::string finding(const Schedule& schedule) {
  try {
    plan::prove(schedule);
    return {};
  } catch (const PlanError& error) {
    return error.record().cause;
  }
}

// Whether the proof asks for more than a load needs: slabs and pack buffers a little larger, a wave
// for every segment alone, and nothing listed that no wave reads.
bool is_strict(const std::string& cause) {
  return cause.find("a segment ends after the slab") != std::string::npos ||
         cause.find("a run ends after the pack buffer") != std::string::npos ||
         cause.find("its wave is taken") != std::string::npos ||
         cause.find("it is read after the last wave") != std::string::npos;
}

bool loads_right(const Schedule& schedule) {
  try {
    return InMemoryLoad(schedule).result_is_right();
  } catch (const PlanError&) {
    return false;
  } catch (const std::out_of_range&) {
    return false;
  }
}

}  // namespace

TEST_CASE("the undamaged schedule is sound, by proof and by simulation", "[proof]") {
  const Schedule schedule = sound_schedule();
  CHECK_NOTHROW(plan::prove(schedule));
  CHECK(loads_right(schedule));
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
  schedule.reads[1].erase(schedule.reads[1].begin());
  try {
    plan::prove(schedule);
    FAIL("the damage was not found");
  } catch (const PlanError& error) {
    CHECK(error.record().tensor == "columns");
  }
}

TEST_CASE("random plans do what the placements say", "[proof]") {
  const auto seed = GENERATE(range(100, 100 + testing::cases(40)));
  const RandomModel model = random_model(static_cast<std::uint32_t>(seed));
  for (const std::uint32_t world : {1U, 2U, 4U, 5U}) {
    PlanOptions options = small_windows();
    CAPTURE(seed, world);
    CHECK(loads_right(make_plan(model.catalog, model.placements, world, options).schedule()));
    options.assignment = Assignment::striped;
    for (const Order order : {Order::file, Order::layer}) {
      options.order = order;
      CAPTURE(static_cast<int>(order));
      CHECK(loads_right(make_plan(model.catalog, model.placements, world, options).schedule()));
    }
  }
}

TEST_CASE("damaged schedules: the proof and a load in memory agree", "[proof]") {
  const auto seed = GENERATE(range(0, testing::cases(40)));
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  const RandomModel model = random_model(static_cast<std::uint32_t>(seed) + 200);
  PlanOptions options = small_windows();
  if (seed % 2 == 0) options.assignment = Assignment::striped;
  if (seed % 4 == 0) options.order = Order::layer;
  const Schedule sound = make_plan(model.catalog, model.placements, 3, options).schedule();
  if (sound.arena_order.empty()) return;
  int found = 0;
  for (int i = 0; i < 100; ++i) {
    Schedule schedule = sound;
    mutate(schedule, random);
    CAPTURE(seed, i);
    const std::string cause = finding(schedule);
    CAPTURE(cause);
    if (cause.empty()) {
      CHECK(loads_right(schedule));
    } else {
      ++found;
      CHECK((is_strict(cause) || !loads_right(schedule)));
    }
  }
  CHECK(found > 10);
}
