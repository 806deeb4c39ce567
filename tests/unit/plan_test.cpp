// Planning: assignment, waves, arenas, budget, hash; and, in every case, the proof.
#include "safeshuffle/plan.hpp"

#include <algorithm>
#include <ctime>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"

#include "plan/arena.hpp"
#include "plan/schedule.hpp"
#include "plan/waves.hpp"
#include "support/catalogs.hpp"
#include "support/catch.hpp"
#include "support/failure.hpp"
#include "support/sanitizers.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

// The aim is one second; this is for any machine, however busy. Quadratic time would be minutes.
constexpr double scale_limit_seconds = 30;

constexpr Assignment assignments[] = {Assignment::round_robin, Assignment::balanced,
                                      Assignment::striped,     Assignment::sliced,
                                      Assignment::mixed,       Assignment::automatic};

bool reads_by_layer(Assignment assignment) {
  return assignment == Assignment::striped || assignment == Assignment::sliced ||
         assignment == Assignment::automatic;
}

std::vector<std::pair<Assignment, Order>> ways_to_read() {
  std::vector<std::pair<Assignment, Order>> ways;
  for (const Assignment assignment : assignments) {
    ways.emplace_back(assignment, Order::file);
    if (reads_by_layer(assignment)) ways.emplace_back(assignment, Order::layer);
  }
  return ways;
}

PlanOptions options(Assignment assignment, std::uint64_t window, DTypePolicy dtype,
                    Order order = Order::file) {
  PlanOptions result;
  result.assignment = assignment;
  result.order = order;
  result.window = window;
  result.dtype = dtype;
  return result;
}

std::uint64_t sum(const Plan& plan, std::uint64_t RankSummary::*field) {
  std::uint64_t total = 0;
  for (const RankSummary& rank : plan.ranks()) total += rank.*field;
  return total;
}

Catalog files_of_bytes(const std::vector<std::uint64_t>& sizes) {
  std::vector<std::vector<Made>> files;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    files.push_back({{numbered("t", i), DType::U8, {sizes[i]}}});
  }
  return make_catalog(files);
}

/// The first wave after which all bytes of a tensor have been read, of which no rank reads what
/// another does.
std::uint32_t first_complete_by_slabs(const Plan& plan) {
  std::map<std::uint32_t, std::uint64_t> missing;
  for (const TensorInfo& tensor : plan.schedule().catalog.tensors()) {
    missing[static_cast<std::uint32_t>(missing.size())] = tensor.bytes;
  }
  plan::Slab slab;
  for (std::uint32_t wave = 0; wave < plan.waves(); ++wave) {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      plan::slab_at(plan.schedule(), wave, rank, slab);
      for (const auto& part : slab.segments) missing[part.tensor] -= part.end - part.begin;
    }
    for (const auto& [tensor, bytes] : missing) {
      if (bytes == 0) return wave;
    }
  }
  return plan.waves();
}

}  // namespace

TEST_CASE("every random plan is provable, in every world, assignment, window and type", "[plan]") {
  const auto seed = GENERATE(range(0, testing::cases(60)));
  const RandomModel model = random_model(static_cast<std::uint32_t>(seed));
  const auto policy = static_cast<DTypePolicy>(seed % 4);
  for (const std::uint32_t world : {1U, 2U, 3U, 5U, 8U}) {
    for (const auto& [assignment, order] : ways_to_read()) {
      for (const std::uint64_t window : {std::uint64_t{4096}, std::uint64_t{1} << 20}) {
        const Plan plan = make_plan(model.catalog, model.placements, world,
                                    options(assignment, window, policy, order));
        CAPTURE(seed, world, static_cast<int>(assignment), static_cast<int>(order), window);
        CHECK_NOTHROW(plan.prove());
        CHECK(sum(plan, &RankSummary::sent_bytes) == sum(plan, &RankSummary::received_bytes));
      }
    }
  }
}

TEST_CASE("whole files, and what is partly sliced, cannot be read in layer order", "[plan]") {
  const RandomModel model = random_model(1);
  for (const Assignment assignment : assignments) {
    const auto plan = [&] {
      make_plan(model.catalog, model.placements, 2,
                options(assignment, 4096, DTypePolicy::keep, Order::layer));
    };
    if (reads_by_layer(assignment)) {
      CHECK_NOTHROW(plan());
      continue;
    }
    CHECK(failure<ConfigError>(plan).cause ==
          "tensors cannot be read in layer order with the assignment " +
              std::string(name(assignment)) + "; use striped, sliced or auto");
  }
}

TEST_CASE("scales, and what is named, keep their type", "[plan]") {
  const Catalog catalog = make_catalog({{{"m.weight", DType::F32, {4}},
                                         {"m.weight_scale", DType::F32, {4}},
                                         {"router.bias", DType::F32, {4}}}});
  PlanOptions half;
  half.dtype = DTypePolicy::f16;
  half.keep_dtype = {"router.*"};
  CHECK(make_plan(catalog, std::vector<Placement>(3), 1, half).ranks()[0].kept_bytes ==
        8 + 16 + 16);
}

TEST_CASE("round-robin gives file i to rank i modulo the world", "[plan]") {
  const Plan plan = make_plan(files_of_bytes({10, 20, 30, 40, 50}), {5, whole()}, 2);
  CHECK(plan.ranks()[0].files == std::vector<std::uint32_t>{0, 2, 4});
  CHECK(plan.ranks()[1].files == std::vector<std::uint32_t>{1, 3});
  CHECK(plan.ranks()[0].read_bytes == 90);
  CHECK(plan.ranks()[1].read_bytes == 60);
}

TEST_CASE("balanced evens out files of different sizes", "[plan]") {
  PlanOptions balanced;
  balanced.assignment = Assignment::balanced;
  const Plan plan = make_plan(files_of_bytes({100, 10, 90, 20, 80}), {5, whole()}, 2, balanced);
  CHECK(plan.ranks()[0].read_bytes == 130);
  CHECK(plan.ranks()[1].read_bytes == 170);
}

TEST_CASE("one file on many ranks: striped gives each a share", "[plan]") {
  std::vector<Made> tensors;
  for (std::size_t i = 0; i < 64; ++i) tensors.push_back({numbered("t", i), DType::F32, {1024}});
  PlanOptions striped;
  striped.assignment = Assignment::striped;
  const Plan plan = make_plan(make_catalog({tensors}), {64, whole()}, 8, striped);
  for (const RankSummary& rank : plan.ranks()) CHECK(rank.read_bytes == 8 * 4096);
}

TEST_CASE("bytes read, sent, received and kept of a known plan", "[plan]") {
  // Two ranks: a [4, 8] F32 (128 bytes) cut by rows, in file 0; b [6] BF16 (12 bytes) replicated,
  // in file 1; c [2] I64 on rank 1 only, in file 0; d dropped, in file 1.
  const Catalog catalog = make_catalog({{{"a", DType::F32, {4, 8}}, {"c", DType::I64, {2}}},
                                        {{"b", DType::BF16, {6}}, {"d", DType::U8, {99}}}});
  const std::vector<Placement> placements{cut(0, 4), whole(Placement::Kind::single, 1), whole(),
                                          whole(Placement::Kind::dropped)};
  PlanOptions half;
  half.dtype = DTypePolicy::f16;
  const Plan plan = make_plan(catalog, placements, 2, half);
  plan.prove();
  const RankSummary& first = plan.ranks()[0];
  const RankSummary& second = plan.ranks()[1];
  CHECK(first.read_bytes == 128 + 16);
  CHECK(second.read_bytes == 12);
  CHECK(first.sent_bytes == 32 + 16);  // half of a, as F16; c
  CHECK(second.sent_bytes == 12);
  CHECK(first.received_bytes == 12);
  CHECK(second.received_bytes == 32 + 16);
  CHECK(first.kept_bytes == 32 + 12);
  CHECK(second.kept_bytes == 32 + 12 + 16);
}

TEST_CASE("a tensor larger than the window travels in segments no larger than it", "[plan]") {
  const Catalog catalog = make_catalog({{{"big", DType::BF16, {1000, 3, 70}}}});
  const auto axis = GENERATE(0U, 1U, 2U);
  PlanOptions small;
  small.assignment = Assignment::round_robin;
  small.window = 8192;
  const Plan plan =
      make_plan(catalog, {cut(axis, catalog.tensors()[0].shape[axis], true)}, 3, small);
  CHECK_NOTHROW(plan.prove());
  CHECK(plan.waves() >= 420'000 / 8192);
  plan::Slab slab;
  for (std::uint32_t wave = 0; wave < plan.waves(); ++wave) {
    plan::slab_at(plan.schedule(), wave, 0, slab);
    REQUIRE(slab.segments.size() == 1);
    CHECK(slab.segments[0].end - slab.segments[0].begin <= 8192);
  }
  CHECK(plan::first_complete_wave(plan.schedule()) == plan.waves() - 1);
}

TEST_CASE("the first wave after which a tensor is complete is that of the one that ends first",
          "[plan]") {
  // Slices have whole segments, so that no rank reads what another does.
  const Catalog catalog =
      make_catalog({{{"big", DType::U8, {64, 1024}}, {"end", DType::U8, {16, 1024}}},
                    {{"middling", DType::U8, {32, 1024}}}});
  PlanOptions small;
  small.assignment = GENERATE(Assignment::round_robin, Assignment::striped, Assignment::sliced);
  small.window = 8192;
  const Plan plan = make_plan(catalog, {cut(0, 64), cut(0, 16), cut(0, 32)}, 2, small);
  CHECK(plan::first_complete_wave(plan.schedule()) == first_complete_by_slabs(plan));
}

TEST_CASE("without a window, a plan has the default of its device", "[plan]") {
  const RandomModel model = random_model(1);
  const auto window_on = [&](DeviceKind device) {
    PlanOptions options;
    options.site.device = device;
    return make_plan(model.catalog, model.placements, 2, options).window();
  };
  constexpr std::uint64_t mi = std::uint64_t{1} << 20;
  CHECK(PlanOptions().window == 0);
  CHECK(window_on(DeviceKind::automatic) == 64 * mi);
  CHECK(window_on(DeviceKind::host) == 64 * mi);
  CHECK(window_on(DeviceKind::cuda) == 256 * mi);
}

TEST_CASE("the budget shrinks the window, and names the tensor where it cannot hold", "[plan]") {
  std::vector<std::vector<Made>> files;
  for (std::size_t i = 0; i < 16; ++i) {
    files.push_back({{numbered("t", i), DType::BF16, {256, 1024}}});
  }
  const Catalog catalog = make_catalog(files);
  const std::vector<Placement> placements(16, cut(0, 256));
  PlanOptions limited;
  limited.window = std::uint64_t{64} << 20;
  limited.memory_budget = std::uint64_t{5} << 20;  // the shards alone are 2 MiB
  const Plan plan = make_plan(catalog, placements, 4, limited);
  CHECK_NOTHROW(plan.prove());
  CHECK(plan.window() < 64 << 20);
  for (const RankSummary& rank : plan.ranks())
    CHECK(rank.peak_device_bytes <= limited.memory_budget);

  limited.reserved_bytes = std::uint64_t{1} << 19;
  const Plan smaller = make_plan(catalog, placements, 4, limited);
  for (const RankSummary& rank : smaller.ranks())
    CHECK(rank.peak_device_bytes <= limited.memory_budget - limited.reserved_bytes);

  limited.memory_budget = GENERATE(std::uint64_t{1} << 20, std::uint64_t{3} << 20);
  limited.reserved_bytes = limited.memory_budget - (std::uint64_t{1} << 20);
  try {
    make_plan(catalog, placements, 4, limited);
    FAIL("the budget cannot hold");
  } catch (const MemoryError& error) {
    CHECK(error.record().tensor.starts_with("t"));
    CHECK(error.record().file == "file-" + error.record().tensor.substr(1));
    CHECK(error.record().cause.find(std::to_string(limited.memory_budget)) != std::string::npos);
    CHECK((error.record().cause.find("2097152 are reserved") != std::string::npos) ==
          (limited.reserved_bytes != 0));
  }
}

TEST_CASE("no budget makes the window smaller than 1 MiB or the largest tensor", "[plan]") {
  const std::uint64_t tensor_bytes = std::uint64_t{1} << GENERATE(16U, 24U);
  const std::uint64_t smallest = std::min(tensor_bytes, std::uint64_t{1} << 20);
  const Catalog catalog = files_of_bytes(std::vector<std::uint64_t>(4, tensor_bytes));
  const std::vector<Placement> placements(4, cut(0, tensor_bytes));
  PlanOptions limited;
  limited.reserved_bytes = 12345;
  limited.memory_budget = limited.reserved_bytes + 2 * tensor_bytes + smallest;  // one slab only
  std::uint64_t sufficient = 0;
  try {
    make_plan(catalog, placements, 2, limited);
    FAIL("a smaller window would have been needed");
  } catch (const MemoryError& error) {
    const std::string& cause = error.record().cause;
    CHECK(cause.find("a window of " + std::to_string(smallest) + " bytes") != std::string::npos);
    CHECK_FALSE(error.record().tensor.empty());
    const std::string before = "a budget of ";
    sufficient = std::stoull(cause.substr(cause.rfind(before) + before.size()));
  }
  limited.memory_budget = sufficient;
  const Plan plan = make_plan(catalog, placements, 2, limited);
  CHECK(plan.window() == smallest);
  CHECK(plan.warnings().empty());
  limited.memory_budget -= 1;
  CHECK_THROWS_AS(make_plan(catalog, placements, 2, limited), MemoryError);

  // A smaller one that was asked for is obeyed, but no budget makes it smaller still.
  limited.window = smallest / 4;
  CHECK(make_plan(catalog, placements, 2, limited).window() == smallest / 4);
  limited.memory_budget = limited.reserved_bytes + 2 * tensor_bytes;
  CHECK_THROWS_AS(make_plan(catalog, placements, 2, limited), MemoryError);
}

TEST_CASE("a budget that is reserved whole holds nothing", "[plan]") {
  const RandomModel model = random_model(11);
  PlanOptions options;
  options.memory_budget = 1000;
  options.reserved_bytes = ~std::uint64_t{0};
  CHECK_THROWS_AS(make_plan(model.catalog, model.placements, 2, options), MemoryError);
}

TEST_CASE(
    "a window far below the tensors is obeyed with a warning, one as large as they are without",
    "[plan]") {
  PlanOptions options;
  options.assignment = Assignment::round_robin;
  options.window = 65536;
  const auto warnings = [&](std::uint64_t tensor_bytes) {
    return make_plan(files_of_bytes({tensor_bytes}), {whole(Placement::Kind::single)}, 2, options)
        .warnings();
  };
  CHECK(warnings(65536).empty());
  REQUIRE(warnings(65537).size() == 1);
  CHECK(warnings(65537)[0].starts_with("a window of 65536 bytes needs 2 waves"));
  options.window = std::uint64_t{1} << 20;
  CHECK(warnings(std::uint64_t{4} << 20).empty());
  options.window -= 1;
  CHECK(warnings(std::uint64_t{4} << 20).size() == 1);
}

TEST_CASE("a plan warns if every rank holds the whole model", "[plan]") {
  const auto warnings = [](const std::vector<Placement>& placements, std::uint32_t world,
                           std::uint64_t bytes = 512) {
    return make_plan(files_of_bytes({bytes, bytes}), placements, world).warnings();
  };
  const Placement dropped = whole(Placement::Kind::dropped);
  REQUIRE(warnings({whole(), whole()}, 2).size() == 1);
  CHECK(warnings({whole(), whole()}, 2)[0].starts_with(
      "no tensor is partitioned: each of the 2 ranks holds all 1024 bytes of the model;"));
  CHECK(warnings({whole(), dropped}, 2).size() == 1);
  CHECK(warnings({whole(), whole()}, 1).empty());
  CHECK(warnings({whole(), cut(0, 512)}, 2).empty());
  CHECK(warnings({whole(), whole(Placement::Kind::single)}, 2).empty());
  CHECK(warnings({dropped, dropped}, 2).empty());
  CHECK(warnings({whole(), whole()}, 2, 0).empty());
}

TEST_CASE("tensors start at multiples of 256 bytes in every arena", "[plan]") {
  const RandomModel model = random_model(7);
  const Plan plan = make_plan(model.catalog, model.placements, 3);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    for (const std::uint64_t offset : plan::arena_offsets(plan.schedule(), rank)) {
      if (offset != plan::not_held) CHECK(offset % 256 == 0);
    }
  }
}

TEST_CASE("equal inputs hash equally, different ones differently", "[plan]") {
  const RandomModel model = random_model(11);
  std::set<std::uint64_t> hashes;
  for (const std::uint32_t world : {2U, 3U}) {
    for (const std::uint64_t window : {4096U, 8192U}) {
      const auto with = options(Assignment::round_robin, window, DTypePolicy::keep);
      const Plan plan = make_plan(model.catalog, model.placements, world, with);
      CHECK(plan.hash() == make_plan(model.catalog, model.placements, world, with).hash());
      hashes.insert(plan.hash());
    }
  }
  CHECK(hashes.size() == 4);
  // Of one tensor, which no order changes.
  for (const Order order : {Order::file, Order::layer}) {
    const auto with = options(Assignment::striped, 4096, DTypePolicy::keep, order);
    hashes.insert(make_plan(files_of_bytes({10}), {whole()}, 2, with).hash());
  }
  CHECK(hashes.size() == 6);
}

TEST_CASE("bad arguments of a plan", "[plan]") {
  const Catalog catalog = files_of_bytes({10});
  PlanOptions tiny;
  tiny.window = 4095;
  CHECK_THROWS_AS(make_plan(catalog, {whole()}, 0), ConfigError);
  CHECK_THROWS_AS(make_plan(catalog, std::vector<Placement>(), 1), ConfigError);
  CHECK_THROWS_AS(make_plan(catalog, {whole()}, 1, tiny), ConfigError);
  CHECK_THROWS_AS(make_plan(catalog, {whole(Placement::Kind::single, 2)}, 2), PlanError);
}

TEST_CASE("a cut inside a byte is refused, one on byte boundaries is not", "[plan]") {
  const Catalog catalog = make_catalog({{{"packed", DType::F4, {4, 6}}}});
  CHECK_NOTHROW(make_plan(catalog, {cut(0, 4)}, 2).prove());
  CHECK_NOTHROW(make_plan(catalog, {cut(1, 6)}, 3).prove());
  try {
    make_plan(catalog, {cut(1, 6)}, 2);
    FAIL("two ranks cannot share three bytes");
  } catch (const PlanError& error) {
    CHECK(error.record().file == "file-0");
    CHECK(error.record().tensor == "packed");
  }
}

TEST_CASE("an empty checkpoint has an empty plan", "[plan]") {
  const Plan plan = make_plan(Catalog(), std::vector<Placement>(), 4);
  CHECK_NOTHROW(plan.prove());
  CHECK(plan.waves() == 0);
}

TEST_CASE("100,000 tensors on 1,024 ranks are planned and proved in about a second",
          "[plan][.scale]") {
  std::vector<std::vector<Made>> files(100);
  std::vector<Placement> placements;
  for (auto& file : files) {
    for (int i = 0; i < 1000; ++i) {
      file.push_back({numbered("tensor.", placements.size()), DType::BF16, {1024, 64}});
      const int kind = i % 10;
      placements.push_back(kind == 0 ? whole() : kind < 6 ? cut(0, 1024) : cut(1, 64, true));
    }
  }
  const Catalog catalog = make_catalog(files);
  // Processor time, so that a busy machine does not fail the test.
  const std::clock_t start = std::clock();
  make_plan(catalog, placements, 1024).prove();
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  CAPTURE(seconds);
  CHECK(seconds < scale_limit_seconds);
}
