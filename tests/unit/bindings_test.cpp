// Bindings: memory that the caller lends, and boxes of stored tensors that fill it. Planning,
// proofs, and a load in memory against naive copies, element by element.
#include "plan/bindings.hpp"

#include <chrono>
#include <functional>
#include <string>

#include "safeshuffle/binding.hpp"
#include "safeshuffle/error.hpp"
#include "safeshuffle/plan.hpp"

#include "core/wire.hpp"
#include "plan/lent_memory.hpp"
#include "plan/proof.hpp"
#include "plan/proof_destination.hpp"
#include "plan/schedule.hpp"
#include "plan/strided_bytes.hpp"
#include "support/catalogs.hpp"
#include "support/catch.hpp"
#include "support/failure.hpp"
#include "support/in_memory_load.hpp"
#include "support/naive_target.hpp"
#include "support/random_bindings.hpp"
#include "support/random_slices.hpp"
#include "support/random_targets.hpp"
#include "support/sanitizers.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;
using plan::LentMemory;
using plan::Schedule;

namespace {

PlanOptions bound_options(Assignment assignment = Assignment::round_robin,
                          std::uint64_t window = 4096) {
  PlanOptions options;
  options.assignment = assignment;
  options.window = window;
  options.dtype = DTypePolicy::f32;  // of no consequence: bindings have types of their own
  return options;
}

std::vector<LentMemory> lend_all(const BoundModel& model) {
  std::vector<LentMemory> lent;
  for (const auto& bindings : model.bindings) lent.push_back(plan::lend(model.catalog, bindings));
  return lent;
}

// As ranks learn of each other's.
std::vector<std::vector<plan::Need>> gather_needs(const std::vector<LentMemory>& lent) {
  std::vector<std::vector<plan::Need>> needs;
  for (const LentMemory& of_rank : lent) {
    needs.push_back(
        core::from_wire<std::vector<plan::Need>>(core::to_wire(plan::needs_of(of_rank))));
  }
  return needs;
}

Plan bound_plan(const Catalog& catalog, const std::vector<LentMemory>& lent,
                const PlanOptions& options, std::uint64_t column_limit = plan::most_columns) {
  return make_plan(catalog, plan::bound_targets(catalog, gather_needs(lent), column_limit),
                   static_cast<std::uint32_t>(lent.size()), options);
}

void prove_all(const Schedule& schedule, const std::vector<LentMemory>& lent) {
  plan::prove(schedule);
  for (std::uint32_t rank = 0; rank < lent.size(); ++rank) {
    plan::prove_destinations(schedule, rank, lent[rank]);
  }
}

bool is_right(const BoundModel& model, const std::vector<LentMemory>& lent,
              const InMemoryLoad& load) {
  const auto stored = [&](const std::string& name) {
    const TensorInfo* tensor = model.catalog.find(name);
    return load.stored(static_cast<std::uint32_t>(tensor - model.catalog.tensors().data()));
  };
  for (std::uint32_t rank = 0; rank < lent.size(); ++rank) {
    const FilledMemory expected = fill_naively(model.catalog, model.bindings[rank], lent[rank].base,
                                               load.arena(rank).size(), stored);
    if (load.arena(rank) != expected.bytes || load.writes(rank) != expected.writes) return false;
  }
  return load.reads_are_right();
}

Assignment assignment_for(std::uint32_t seed) {
  static constexpr Assignment list[] = {Assignment::round_robin, Assignment::balanced,
                                        Assignment::striped, Assignment::sliced};
  return list[seed % std::size(list)];
}

}  // namespace

TEST_CASE("random bindings: plans are proved and memory is filled", "[bindings]") {
  static constexpr std::uint32_t worlds[] = {1, 2, 3, 4, 5, 8};
  static constexpr std::uint64_t limits[] = {1, 5, plan::most_columns};
  const auto batch = GENERATE(range(0, testing::cases(50)));
  for (int i = 0; i < testing::cases(200); ++i) {
    const auto seed = static_cast<std::uint32_t>(batch * 1000 + i);
    const std::uint32_t world = worlds[seed % std::size(worlds)];
    CAPTURE(seed, world);
    const BoundModel model = random_bindings(seed, world);
    const std::vector<LentMemory> lent = lend_all(model);
    const PlanOptions options =
        bound_options(assignment_for(seed / 7), seed % 5 == 0 ? 1 << 20 : 4096);
    const Plan plan = bound_plan(model.catalog, lent, options, limits[seed / 3 % 3]);
    prove_all(plan.schedule(), lent);
    const plan::InPlaceRule in_place{.smallest = seed % 40, .congruent = seed % 7 == 0};
    CHECK(is_right(model, lent, InMemoryLoad(plan.schedule(), in_place, lent)));
    const Schedule mixed = with_random_slices(plan, seed);
    prove_all(mixed, lent);
    CHECK(is_right(model, lent, InMemoryLoad(mixed, in_place, lent)));
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    for (const RankSummary& rank : plan.ranks()) {
      sent += rank.sent_bytes;
      received += rank.received_bytes;
      CHECK(rank.arena_bytes == 0);
    }
    CHECK(sent == received);
  }
}

namespace {

// All bytes, one by one.
std::vector<int> counted(const plan::StridedBytes& bytes, std::size_t size) {
  std::vector<int> count(size);
  const std::function<void(std::size_t, std::uint64_t)> visit = [&](std::size_t depth,
                                                                    std::uint64_t at) {
    if (depth == bytes.loops.size()) {
      for (std::uint64_t i = 0; i < bytes.run_bytes; ++i) ++count[at + i];
      return;
    }
    for (std::uint64_t i = 0; i < bytes.loops[depth].count; ++i) {
      visit(depth + 1, at + i * bytes.loops[depth].stride);
    }
  };
  visit(0, bytes.begin);
  return count;
}

plan::StridedBytes random_bytes(PseudoRandom& random) {
  plan::StridedBytes bytes{random.below(30), {}, 1 + random.below(3)};
  for (std::uint64_t i = random.below(4); i > 0; --i) {
    bytes.loops.push_back({1 + random.below(4), 1 + random.below(20)});
  }
  return bytes;
}

}  // namespace

TEST_CASE("overlaps of strided bytes are found exactly", "[bindings]") {
  PseudoRandom random(1);
  int overlapping = 0;
  for (int i = 0; i < 3000; ++i) {
    const plan::StridedBytes a = random_bytes(random);
    const plan::StridedBytes b = random_bytes(random);
    const std::vector<int> in_a = counted(a, 400);
    const std::vector<int> in_b = counted(b, 400);
    bool twice = false;
    bool both = false;
    for (std::size_t at = 0; at < in_a.size(); ++at) {
      twice = twice || in_a[at] > 1;
      both = both || (in_a[at] != 0 && in_b[at] != 0);
    }
    CAPTURE(i);
    CHECK(plan::overlaps_itself(a) == twice);
    CHECK(plan::overlap(a, b) == both);
    CHECK(plan::overlap(b, a) == both);
    overlapping += both ? 1 : 0;
  }
  CHECK((overlapping > 500 && overlapping < 2500));
}

TEST_CASE("bindings that cannot be are refused, naming tensor and destination", "[bindings]") {
  const Catalog catalog =
      make_catalog({{{"a", DType::F16, {4, 6}}, {"i", DType::I32, {4}}, {"f", DType::F4, {4, 3}}}});
  const auto cause = [&](const std::vector<Binding>& bindings) {
    const ErrorRecord record = failure<PlanError>([&] { plan::lend(catalog, bindings); });
    CHECK(record.tensor == bindings.front().box.tensor);
    return record.cause;
  };
  const auto bound = [](Box box, std::vector<std::uint64_t> strides, DType dtype = DType::F16,
                        std::uint64_t at = 0, std::string name = "w") {
    return Binding{std::move(box), invented_memory(at), dtype, std::move(strides), std::move(name)};
  };
  const Box all{"a", 0, {4, 6}, {6, 1}};
  CHECK_NOTHROW(plan::lend(catalog, std::vector{bound(all, {6, 1})}));
  CHECK(cause({bound({"b", 0, {4}, {1}}, {1})}) ==
        "'w' cannot be filled: the checkpoint has no such tensor");
  CHECK(cause({bound({"a", 1, {4, 6}, {6, 1}}, {6, 1})}) ==
        "'w' cannot be filled: its box ends after the tensor");
  CHECK(cause({bound({"a", 0, {~std::uint64_t{0}}, {3}}, {1})}).find("larger than any memory") !=
        std::string::npos);
  CHECK(cause({bound({"a", 0, {4}, {~std::uint64_t{0}}}, {1})}) ==
        "'w' cannot be filled: its box ends after the tensor");
  for (const Box& twice : {Box{"a", 0, {4, 6}, {5, 1}}, Box{"a", 0, {4}, {0}}}) {
    std::vector<std::uint64_t> strides = dense_strides(twice.sizes);
    CHECK(cause({bound(twice, strides)}) ==
          "'w' cannot be filled: the strides of its box are too small: an element would be read "
          "twice");
  }
  CHECK(cause({bound({"a", 0, {4, 6}, {6}}, {6, 1})}) ==
        "'w' cannot be filled: its sizes and strides differ in number");
  CHECK(cause({bound(all, {6})}) == "'w' cannot be filled: its sizes and strides differ in number");
  CHECK(cause({bound(all, {6, 1}, DType::I16)}) == "'w' cannot be filled: F16 cannot become I16");
  CHECK(cause({bound({"i", 0, {4}, {1}}, {1}, DType::F32)}) ==
        "'w' cannot be filled: I32 cannot become F32");
  for (const Box& inside : {Box{"f", 1, {2}, {1}}, Box{"f", 0, {3}, {1}},
                            Box{"f", 0, {4, 2}, {3, 1}}, Box{"f", 0, {2}, {3}}}) {
    CHECK(cause({bound(inside, dense_strides(inside.sizes), DType::F4)}) ==
          "'w' cannot be filled: a part of it begins or ends inside a byte");
  }
  for (const std::vector<std::uint64_t>& strides :
       {std::vector<std::uint64_t>{5, 1}, {0, 1}, {2, 3}}) {
    CHECK(cause({bound(all, strides)}) ==
          "'w' cannot be filled: two of its elements are at one place");
  }
  CHECK(cause({{all, nullptr, DType::F16, {6, 1}, "w"}}) ==
        "'w' cannot be filled: it has no memory");
  CHECK(cause({bound(all, {6, 1}), bound(all, {6, 1}, DType::F16, 46, "x")}) ==
        "'w' cannot be filled: it overlaps 'x' in memory");
  const Box zeros{"", 0, {2}, {}, true};
  CHECK(cause({bound(zeros, {1}), bound(all, {6, 1}, DType::F16, 2, "x")}) ==
        "'w' cannot be filled: it overlaps 'x' in memory");
}

TEST_CASE("a tensor without a name is no zeros", "[bindings]") {
  const Catalog catalog = make_catalog({{{"", DType::U8, {4}}}});
  Binding binding{{"", 0, {4}, {1}}, invented_memory(0), DType::U8, {1}, "w"};
  CHECK(plan::lend(catalog, {&binding, 1}).copies.size() == 1);
  binding.box.is_zeros = true;
  CHECK(plan::lend(catalog, {&binding, 1}).copies.empty());
  binding.box = {"absent", 0, {0}, {1}};
  CHECK_THROWS_AS(plan::lend(catalog, {&binding, 1}), PlanError);
}

TEST_CASE("bindings that touch, cross, or are empty are allowed", "[bindings]") {
  const Catalog catalog = make_catalog({{{"a", DType::F16, {4, 6}}, {"f", DType::F4, {4, 3}}}});
  const Box rows{"a", 0, {2, 6}, {6, 1}};
  const auto bound = [](Box box, std::uint64_t at, std::vector<std::uint64_t> strides) {
    return Binding{std::move(box), invented_memory(at), DType::F16, std::move(strides), "w"};
  };
  // One behind the other; interleaved columns; strides of which neither is a multiple.
  CHECK(plan::lend(catalog, std::vector{bound(rows, 0, {6, 1}), bound(rows, 24, {6, 1})})
            .copies.size() == 2);
  CHECK(plan::lend(catalog, std::vector{bound(rows, 0, {12, 1}), bound(rows, 12, {12, 1})})
            .copies.size() == 2);
  CHECK(
      plan::lend(catalog, std::vector{bound({"a", 0, {2, 3}, {6, 1}}, 0, {3, 2})}).copies.size() ==
      1);
  CHECK(
      plan::lend(catalog, std::vector{bound({"a", 99, {0, 3}, {6, 1}}, 0, {3, 1})}).copies.empty());
  Binding all_of_f = bound({"f", 0, {4, 3}, {3, 1}}, 0, {3, 1});
  all_of_f.dtype = DType::F4;
  CHECK(plan::lend(catalog, std::vector{all_of_f}).copies.front().run_bytes == 6);
}

TEST_CASE("what ranks need alike is broadcast, what one needs is sent to it alone", "[bindings]") {
  const Catalog catalog = make_catalog({{{"rows", DType::F16, {8, 64}},
                                         {"columns", DType::F16, {8, 64}},
                                         {"all", DType::F16, {64}},
                                         {"one", DType::F16, {64}},
                                         {"none", DType::F16, {64}}}});
  BoundModel model{catalog, std::vector<std::vector<Binding>>(2)};
  for (std::uint64_t rank = 0; rank < 2; ++rank) {
    std::uint64_t at = 0;
    const auto add = [&](const char* name, std::vector<Interval> indices) {
      Box box = box_of(*catalog.find(name), indices);
      std::vector<std::uint64_t> strides = dense_strides(box.sizes);
      model.bindings[rank].push_back(
          {std::move(box), invented_memory(at), DType::F16, std::move(strides), name});
      at += 1024;
    };
    add("rows", {{4 * rank, 4}, {0, 64}});
    add("columns", {{0, 8}, {32 * rank, 32}});
    add("all", {{0, 64}});
    if (rank == 1) add("one", {{0, 64}});
  }
  const std::vector<LentMemory> lent = lend_all(model);
  const Plan plan = bound_plan(catalog, lent, bound_options());
  prove_all(plan.schedule(), lent);
  using Kind = Placement::Kind;
  std::vector<Kind> kinds;
  for (const Target& target : plan.targets()) kinds.push_back(target.placement.kind);
  CHECK(kinds == std::vector{Kind::sharded, Kind::sharded, Kind::replicated, Kind::single});
  CHECK(plan.schedule().cuts[0] == plan::Cut{1, 1024, 8});
  CHECK(plan.schedule().cuts[1] == plan::Cut{8, 128, 8});
  CHECK(plan.needed_bytes() == 2 * 1024 + 2 * 128);
  // Rank 0 reads all: it lands only what it broadcasts.
  CHECK(plan.ranks()[0].sent_bytes == 2 * 512 + 2 * 128);
  CHECK(plan.ranks()[0].landing_bytes == 256);
  CHECK(plan.ranks()[1].landing_bytes == 2 * 512 + 2 * 256);
  CHECK(plan.ranks()[1].kept_bytes == 2 * 512 + 2 * 128);
}

TEST_CASE("tensors that are needed alike share their parts and geometry", "[bindings]") {
  const Catalog catalog = make_catalog(
      {{{"a", DType::F16, {8, 6}}, {"b", DType::F16, {8, 6}}, {"c", DType::F16, {8, 6}}}});
  std::vector<LentMemory> lent;
  for (std::uint64_t rank = 0; rank < 2; ++rank) {
    std::vector<Binding> bindings;
    for (const char* name : {"a", "b", "c"}) {
      const std::uint64_t begin = name[0] == 'c' ? 2 - 2 * rank : 2 * rank;
      bindings.push_back({box_of(*catalog.find(name), std::vector<Interval>{{0, 8}, {begin, 2}}),
                          invented_memory(64 * bindings.size()),
                          DType::F16,
                          {2, 1},
                          name});
    }
    lent.push_back(plan::lend(catalog, bindings));
  }
  const Plan plan = bound_plan(catalog, lent, bound_options());
  const auto& targets = plan.targets();
  CHECK(targets[0].parts == targets[1].parts);
  CHECK(targets[0].parts != targets[2].parts);
  const plan::Geometries found = plan::find_geometries(plan.schedule());
  CHECK(found.of_tensor == std::vector<std::uint32_t>{0, 0, 1});
  std::swap(lent[0], lent[1]);
  CHECK(bound_plan(catalog, lent, bound_options()).hash() != plan.hash());
}

TEST_CASE("rows are as large as ranks' boxes repeat, or the whole tensor", "[bindings]") {
  const Catalog catalog = make_catalog({{{"a", DType::F32, {24}}}});
  const auto cut_for = [&](const std::vector<std::uint64_t>& steps) {
    std::vector<LentMemory> lent;
    for (const std::uint64_t step : steps) {
      lent.push_back(plan::lend(
          catalog, std::vector<Binding>{
                       {{"a", 0, {24 / step}, {step}}, invented_memory(0), DType::F32, {1}, "w"}}));
    }
    return bound_plan(catalog, lent, bound_options()).schedule().cuts.front();
  };
  CHECK(cut_for({2, 2}) == plan::Cut{12, 8, 8});
  CHECK(cut_for({2, 6, 3}) == plan::Cut{4, 24, 8});
  CHECK(cut_for({1, 3}) == plan::Cut{8, 12, 8});
  CHECK(cut_for({2, 3}) == plan::Cut{1, 96, 8});
  CHECK(cut_for({1, 1}) == plan::Cut{1, 96, 8});
}

TEST_CASE("too many columns become one, with what lies between them", "[bindings]") {
  const Catalog catalog = make_catalog({{{"a", DType::U8, {4, 10, 10}}}});
  // Of 2 of the 4 matrices, 5 rows, 3 columns.
  const Binding binding{
      {"a", 0, {2, 5, 3}, {100, 10, 1}}, invented_memory(0), DType::U8, {15, 3, 1}, "w"};
  const std::vector<std::vector<plan::Need>> needs{
      plan::needs_of(plan::lend(catalog, std::vector{binding}))};
  const auto columns_for = [&](std::uint64_t limit) {
    return plan::bound_targets(catalog, needs, limit).front().parts->columns.front().columns;
  };
  CHECK(columns_for(10).size() == 10);
  CHECK(columns_for(9) == std::vector<plan::Columns>{{0, 43}, {100, 143}});
  CHECK(columns_for(1) == std::vector<plan::Columns>{{0, 143}});
}

TEST_CASE("lent memory has no replicas", "[bindings]") {
  const BoundModel model = random_bindings(4, 2);
  PlanOptions options = bound_options();
  options.replicas = 2;
  CHECK_THROWS_AS(bound_plan(model.catalog, lend_all(model), options), ConfigError);
}

namespace {

struct SoundLoad {
  BoundModel model;
  std::vector<LentMemory> lent;
  Schedule schedule;
};

// One that exchanges in several waves, with broadcasts.
SoundLoad sound_load(std::uint32_t seed) {
  BoundModel model = random_bindings(seed, 3);
  std::vector<LentMemory> lent = lend_all(model);
  const Plan plan = bound_plan(model.catalog, lent, bound_options());
  return {std::move(model), std::move(lent), plan.schedule()};
}

std::shared_ptr<plan::RankParts> copy_of_parts(Target& target) {
  auto parts = std::make_shared<plan::RankParts>(*target.parts);
  target.parts = parts;
  return parts;
}

bool is_not_proved(const std::function<void()>& proof) {
  try {
    proof();
  } catch (const PlanError&) {
    return true;
  }
  return false;
}

}  // namespace

TEST_CASE("damaged plans for lent memory are not proved", "[bindings]") {
  const std::vector<std::function<void(Schedule&)>> damages{
      [](Schedule& s) { copy_of_parts(s.targets[0])->columns[0] = {}; },
      [](Schedule& s) { copy_of_parts(s.targets[0])->columns.pop_back(); },
      [](Schedule& s) { copy_of_parts(s.targets[0])->row_bytes += 1; },
      [](Schedule& s) { copy_of_parts(s.targets[0])->row_bytes = 0; },
      [](Schedule& s) { copy_of_parts(s.targets[1])->columns[0].row_bytes += 1; },
      [](Schedule& s) { copy_of_parts(s.targets[1])->columns[0].before[0] += 1; },
      [](Schedule& s) { copy_of_parts(s.targets[1])->columns[0].columns[0].end += 1; },
      [](Schedule& s) { s.targets[0].placement.kind = Placement::Kind::dropped; },
      [](Schedule& s) { s.targets[0].placement = whole(Placement::Kind::single, 1); },
      [](Schedule& s) { s.targets[1].parts = nullptr; },
      [](Schedule& s) { s.targets[0].parts = nullptr; },
      [](Schedule& s) { s.lands[0] = false; },
      [](Schedule& s) { s.arena_order.push_back(0); },
      [](Schedule& s) { s.ranks[0].landing_bytes -= 256; },
      [](Schedule& s) { s.ranks[1].landing_bytes -= 256; },
      [](Schedule& s) { s.ranks[0].pack_bytes = 0; },
      [](Schedule& s) { s.cuts[1].row_bytes *= 2; },
      [](Schedule& s) { s.reads[0].pop_back(); },
  };
  const Catalog catalog = make_catalog({{{"all", DType::F16, {256}}, {"half", DType::F16, {8, 64}}},
                                        {{"more", DType::F16, {8, 64}}}});
  std::vector<LentMemory> lent;
  for (std::uint64_t rank = 0; rank < 2; ++rank) {
    const std::vector<Interval> columns{{0, 8}, {32 * rank, 32}};
    lent.push_back(plan::lend(
        catalog,
        std::vector<Binding>{{{"all", 0, {256}, {1}}, invented_memory(0), DType::F16, {1}, "all"},
                             {box_of(*catalog.find("half"), columns),
                              invented_memory(512),
                              DType::F16,
                              {32, 1},
                              "h"},
                             {box_of(*catalog.find("more"), columns),
                              invented_memory(1024),
                              DType::F32,
                              {32, 1},
                              "m"}}));
  }
  const Schedule sound = bound_plan(catalog, lent, bound_options()).schedule();
  CHECK_NOTHROW(prove_all(sound, lent));
  for (std::size_t i = 0; i < damages.size(); ++i) {
    Schedule schedule = sound;
    damages[i](schedule);
    CAPTURE(i);
    CHECK_THROWS_AS(plan::prove(schedule), PlanError);
  }
}

TEST_CASE("damaged items for lent memory are not proved", "[bindings]") {
  const auto seed = GENERATE(range(0U, testing::cases(30U)));
  const SoundLoad load = sound_load(seed);
  PseudoRandom random(seed);
  const std::uint32_t rank = seed % 3;
  plan::TransferPlanner planner(load.schedule, rank, &load.lent[rank]);
  std::vector<plan::Outgoing> outgoing;
  std::vector<plan::Incoming> incoming;
  std::vector<PackItem*> items;
  for (std::uint32_t wave = 0; wave < load.schedule.waves; ++wave) {
    outgoing.push_back(planner.outgoing(wave));
    incoming.push_back(planner.incoming(wave));
  }
  for (plan::Outgoing& each : outgoing) {
    for (PackItem& item : each.items) {
      if (item.target == PackTarget::arena) items.push_back(&item);
    }
  }
  for (plan::Incoming& each : incoming) {
    for (PackItem& item : each.unpack) items.push_back(&item);
    for (PackItem& item : each.spared) items.push_back(&item);
  }
  const auto prove = [&] {
    plan::DestinationProof proof(load.schedule, rank, load.lent[rank]);
    for (std::uint32_t wave = 0; wave < load.schedule.waves; ++wave) {
      proof.check_wave(wave, outgoing[wave], incoming[wave]);
    }
    proof.check_all_written();
  };
  CHECK_NOTHROW(prove());
  for (int i = 0; i < 40 && !items.empty(); ++i) {
    PackItem& item = *items[random.below(items.size())];
    const PackItem sound = item;
    const std::uint64_t delta =
        random.below(2) == 0 ? 1 + random.below(4) : 0 - random.below(3) - 1;
    switch (i % 8) {
      case 0:
        item.source += delta;
        break;
      case 1:
        item.destination += delta;
        break;
      case 2:
        item.rows += delta;
        break;
      case 3:
        item.row_bytes += delta;
        break;
      case 4:
        item.source_stride += item.rows == 1 ? 0 : delta;
        break;
      case 5:
        item.destination_stride += item.rows == 1 ? 0 : delta;
        break;
      case 6:
        item.to = item.to == DType::F32 ? DType::F16 : DType::F32;
        break;
      default:
        item = *items[random.below(items.size())];
        break;
    }
    const bool same = item.source == sound.source && item.destination == sound.destination &&
                      item.rows == sound.rows && item.row_bytes == sound.row_bytes &&
                      item.source_stride == sound.source_stride &&
                      item.destination_stride == sound.destination_stride && item.to == sound.to;
    CAPTURE(seed, i, same);
    CHECK(is_not_proved(prove) == !same);
    item = sound;
  }
}

TEST_CASE("what is one block where it belongs is received there", "[bindings]") {
  const Catalog catalog = make_catalog({{{"a", DType::F16, {8, 64}}, {"b", DType::F16, {64}}}});
  const Box half = box_of(*catalog.find("a"), std::vector<Interval>{{0, 8}, {32, 32}});
  const Box all = box_of(*catalog.find("a"), std::vector<Interval>{{0, 8}, {0, 64}});
  struct Case {
    Binding binding;  // of rank 1; rank 0 reads
    bool in_place = false;
  };
  const std::vector<Case> cases{
      {{half, invented_memory(64), DType::F16, {32, 1}, "dense"}, true},
      {{all, invented_memory(64), DType::F16, {64, 1}, "all"}, true},
      {{half, invented_memory(64), DType::F16, {33, 1}, "padded"}, false},
      {{half, invented_memory(64), DType::F32, {32, 1}, "converted"}, false},
      {{half, invented_memory(72), DType::F16, {32, 1}, "misaligned"}, false},
      {{half, invented_memory(64), DType::F16, {1, 8}, "transposed"}, false},
  };
  for (const auto& [binding, in_place] : cases) {
    const bool is_broadcast = binding.name == "all";
    std::vector<Binding> of_reader{
        {{"b", 0, {64}, {1}}, invented_memory(2048), DType::F16, {1}, "b"}};
    if (is_broadcast) of_reader.push_back(binding);
    const std::vector<LentMemory> lent{plan::lend(catalog, of_reader),
                                       plan::lend(catalog, std::span(&binding, 1))};
    const Schedule schedule = bound_plan(catalog, lent, bound_options()).schedule();
    CAPTURE(binding.name);
    CHECK_NOTHROW(prove_all(schedule, lent));
    plan::TransferPlanner planner(schedule, 1, &lent[1]);
    plan::Incoming incoming = planner.incoming(0);
    std::vector<plan::Run>& runs = is_broadcast ? incoming.broadcasts : incoming.receives;
    REQUIRE(runs.size() == 1);
    CHECK((runs[0].memory == plan::RunMemory::arena) == in_place);
    CHECK(incoming.unpack.empty() == in_place);
    CHECK(incoming.spared.empty() != in_place);
    if (!in_place) continue;

    const auto prove = [&](const plan::Incoming& damaged) {
      plan::DestinationProof proof(schedule, 1, lent[1]);
      proof.check_wave(0, planner.outgoing(0), damaged);
      proof.check_all_written();
    };
    CHECK_NOTHROW(prove(incoming));
    runs[0].offset += 16;
    CHECK(is_not_proved([&] { prove(incoming); }));
    runs[0].offset -= 16;
    incoming.spared.clear();
    CHECK(is_not_proved([&] { prove(incoming); }));
    if (!is_broadcast) continue;
    // What a rank broadcasts itself must have landed: it is packed there.
    plan::TransferPlanner of_root(schedule, 0, &lent[0]);
    plan::Incoming own = of_root.incoming(0);
    REQUIRE(own.broadcasts[0].memory == plan::RunMemory::landing);
    REQUIRE(own.unpack.size() == 1);
    own.spared = std::exchange(own.unpack, {});
    own.broadcasts[0] = {0, plan::RunMemory::arena, own.spared[0].destination, 1024};
    CHECK(is_not_proved([&] {
      plan::DestinationProof(schedule, 0, lent[0]).check_wave(0, of_root.outgoing(0), own);
    }));
  }
}

TEST_CASE("a row that is too long is not proved, even if the next one is shorter", "[bindings]") {
  const Catalog catalog = make_catalog({{{"a", DType::U8, {2, 4}}}});
  const std::vector<LentMemory> lent{plan::lend(
      catalog, std::vector<Binding>{
                   {{"a", 0, {2, 4}, {4, 1}}, invented_memory(0), DType::U8, {6, 1}, "w"}})};
  const Schedule schedule = bound_plan(catalog, lent, bound_options()).schedule();
  plan::TransferPlanner planner(schedule, 0, &lent[0]);
  plan::Outgoing outgoing = planner.outgoing(0);
  const auto prove = [&] {
    plan::DestinationProof proof(schedule, 0, lent[0]);
    proof.check_wave(0, outgoing, planner.incoming(0));
    proof.check_all_written();
  };
  CHECK_NOTHROW(prove());
  PackItem first = outgoing.items.at(0);
  first.rows = 1;
  PackItem second = first;
  second.source += 4;
  second.destination += 6;
  outgoing.items = {first, second};
  CHECK_NOTHROW(prove());
  outgoing.items[0].row_bytes += 1;
  outgoing.items[1].source += 1;
  outgoing.items[1].destination += 1;
  outgoing.items[1].row_bytes -= 1;
  CHECK(is_not_proved(prove));
}

TEST_CASE("bindings of placed and composed targets fill what a load does", "[bindings]") {
  static constexpr std::uint32_t worlds[] = {1, 2, 3, 5};
  for (int i = 0; i < testing::cases(150); ++i) {
    const auto seed = static_cast<std::uint32_t>(i);
    const std::uint32_t world = worlds[seed % std::size(worlds)];
    const RandomTargets random = random_targets(seed);
    BoundModel model{random.catalog, std::vector<std::vector<Binding>>(world)};
    struct Shard {
      const Target* target = nullptr;
      std::vector<std::uint64_t> strides;
      std::uint64_t at = 0;
    };
    std::vector<std::vector<Shard>> shards(world);
    CAPTURE(seed, world);
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      std::uint64_t at = 0;
      for (const Target& target : random.targets) {
        if (!holds(target.placement, rank)) continue;
        const DType dtype = random.catalog.tensors()[target.tensor].dtype;
        const Shape shape =
            shard_shape(shape_of(target, random.catalog), target.placement, rank, world);
        std::vector<std::uint64_t> strides = dense_strides(shape);
        // Every second one with a column of gaps.
        const bool padded = shards[rank].size() % 2 == 1 && shape.size() > 1;
        for (std::size_t axis = 0; padded && axis + 1 < shape.size(); ++axis) strides[axis] *= 2;
        shards[rank].push_back({&target, strides, at});
        std::vector<Binding> bindings = bindings_of(
            random.catalog, target, rank, world,
            {invented_memory(at), dtype, padded ? strides : std::vector<std::uint64_t>()});
        for (Binding& binding : bindings) model.bindings[rank].push_back(std::move(binding));
        std::uint64_t elements = 1;
        for (const std::uint64_t extent : shape) elements *= extent;
        at += 2 * elements * bits(dtype) / 8;
      }
    }
    const std::vector<LentMemory> lent = lend_all(model);
    const Plan plan = bound_plan(model.catalog, lent, bound_options());
    prove_all(plan.schedule(), lent);
    const InMemoryLoad load(plan.schedule(), {.smallest = ~std::uint64_t{0}}, lent);
    CHECK(is_right(model, lent, load));
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      for (const Shard& shard : shards[rank]) {
        const Target& target = *shard.target;
        const DType dtype = random.catalog.tensors()[target.tensor].dtype;
        const std::vector<std::byte> expected =
            slice(whole_target(random.catalog, target,
                               [&](std::uint32_t tensor) { return load.stored(tensor); }),
                  shape_of(target, random.catalog), dtype, target.placement, rank, world);
        const Binding dense{
            {"",
             0,
             shard_shape(shape_of(target, random.catalog), target.placement, rank, world),
             {},
             true},
            nullptr,
            dtype,
            shard.strides,
            {}};
        const std::uint64_t element = bits(dtype) / 8;
        const auto begin = static_cast<std::uint64_t>(invented_memory(shard.at) - lent[rank].base);
        std::uint64_t next = 0;
        bool right = true;
        for_each_element(dense, [&](std::uint64_t, std::uint64_t at) {
          for (std::uint64_t byte = 0; byte < element; ++byte) {
            const std::uint64_t place = begin + at * element + byte;
            right = right && load.arena(rank).at(place) == expected.at(next) &&
                    load.writes(rank).at(place) == 1;
            ++next;
          }
        });
        CHECK(right);
        CHECK(next == expected.size());
      }
    }
  }
}

TEST_CASE("bindings of a target whose tensor cannot be named are refused", "[bindings]") {
  const Catalog catalog = make_catalog({{{"a", DType::F4, {4, 6}}}, {{"a", DType::F4, {4, 6}}}},
                                       Catalog::Names::by_file);
  const ShardMemory memory{invented_memory(0), DType::F4};
  const std::uint32_t second = catalog.find("a") == catalog.tensors().data() ? 1 : 0;
  CHECK_NOTHROW(bindings_of(catalog, {1 - second, whole()}, 0, 1, memory));
  CHECK(failure<PlanError>([&] {
          bindings_of(catalog, {second, whole()}, 0, 1, memory);
        }).cause == "another tensor has the name of a part of it");
  CHECK(failure<PlanError>([&] {
          bindings_of(catalog, {1 - second, fused(1, {3, 3})}, 1, 2, memory);
        }).cause == "a part of it begins inside a byte");
}

TEST_CASE("100,000 boxes on 8 ranks are planned and proved in time", "[bindings]") {
  constexpr std::uint32_t world = 8;
  constexpr std::size_t boxes_per_rank = 12'500;
  std::vector<std::vector<Made>> files(40);
  for (std::size_t i = 0; i < boxes_per_rank; ++i) {
    Made made{numbered("model.layers.weight.", i), DType::BF16, {64, 64}};
    files[i % files.size()].push_back(made);
  }
  const Catalog catalog = make_catalog(files);
  std::vector<std::vector<Binding>> bindings(world);
  for (std::uint64_t rank = 0; rank < world; ++rank) {
    std::uint64_t at = 0;
    for (const TensorInfo& tensor : catalog.tensors()) {
      std::vector<Interval> indices{{0, 64}, {0, 64}};
      if (at % 3 != 0) indices[at % 3 - 1] = {8 * rank, 8};
      Box box = box_of(tensor, indices);
      std::vector<std::uint64_t> strides = dense_strides(box.sizes);
      bindings[rank].push_back({std::move(box), invented_memory(at * 8192), DType::BF16,
                                std::move(strides), tensor.name});
      ++at;
    }
  }
  const auto start = std::chrono::steady_clock::now();
  std::vector<LentMemory> lent;
  for (const auto& of_rank : bindings) lent.push_back(plan::lend(catalog, of_rank));
  const Plan plan = bound_plan(catalog, lent, bound_options(Assignment::round_robin, 16 << 20));
  plan.prove();
  const std::chrono::duration<double> shared = std::chrono::steady_clock::now() - start;
  plan::prove_destinations(plan.schedule(), 0, lent[0]);
  const std::chrono::duration<double> all = std::chrono::steady_clock::now() - start;
  INFO(shared.count() << " s, with the destinations of a rank " << all.count() << " s");
  CHECK(all.count() < 30);
}
