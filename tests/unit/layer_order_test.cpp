// Layers: which there are, in which order they are read, and what is complete after which wave.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "safeshuffle/placement.hpp"
#include "safeshuffle/plan.hpp"
#include "safeshuffle/target.hpp"

#include "placement/rule_set.hpp"
#include "plan/completion.hpp"
#include "plan/schedule.hpp"
#include "plan/segments.hpp"
#include "plan/waves.hpp"
#include "support/assignment.hpp"
#include "support/catalogs.hpp"
#include "support/catch.hpp"
#include "support/pseudo_random.hpp"
#include "support/random_slices.hpp"
#include "support/random_targets.hpp"
#include "support/sanitizers.hpp"
#include "synth/layout.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;
using nlohmann::json;
using plan::Schedule;

namespace {

PlanOptions by_layer(Assignment assignment, std::uint64_t window) {
  PlanOptions options;
  options.assignment = assignment;
  options.order = Order::layer;
  options.window = window;
  return options;
}

Plan replicated(const Catalog& catalog, std::uint32_t world = 1, const PlanOptions& options = {}) {
  return make_plan(catalog, std::vector<Placement>(catalog.tensors().size()), world, options);
}

/// Depths by name, of tensors of one byte each.
std::map<std::string, std::uint32_t> depths(const std::vector<std::string>& names) {
  std::vector<Made> made;
  for (const std::string& name : names) made.push_back({name, DType::U8, {1}});
  const Catalog catalog = make_catalog({made});
  const plan::Layers layers = replicated(catalog).schedule().layers;
  std::map<std::string, std::uint32_t> found;
  for (std::size_t i = 0; i < names.size(); ++i) found[names[i]] = layers.depth[i];
  return found;
}

std::vector<std::uint64_t> count_up(std::uint64_t count) {
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 0; i < count; ++i) numbers.push_back(i);
  return numbers;
}

Catalog catalog_of_layout(const synth::Layout& layout) {
  std::vector<std::vector<Made>> files;
  for (const synth::LayoutFile& file : layout.files) {
    std::vector<Made>& made = files.emplace_back();
    for (const auto& spec : file.tensors) made.push_back({spec.name, spec.dtype, spec.shape});
  }
  return make_catalog(files);
}

/// Tensors of 1 to 9 rows of 512 bytes in up to 30 layers of up to 9 each, in four files.
struct LayeredModel {
  Catalog catalog;
  std::vector<Placement> placements;
};

LayeredModel layered_model(std::uint64_t seed) {
  PseudoRandom random(seed);
  std::vector<std::string> names{"embed.weight", "norm.weight", "lm_head.weight"};
  const std::uint64_t layers = 1 + random.below(30);
  for (std::uint64_t layer = 0; layer < layers; ++layer) {
    for (std::uint64_t i = 1 + random.below(9); i > 0; --i) {
      names.push_back(numbered("model.layers.", layer) + numbered(".t", i));
    }
  }
  std::vector<std::vector<Made>> files(4);
  for (const std::string& name : names) {
    files[random.below(4)].push_back({name, DType::U8, {1 + random.below(9), 512}});
  }
  LayeredModel model{make_catalog(files), {}};
  for (const TensorInfo& tensor : model.catalog.tensors()) {
    const std::uint64_t way = random.below(3);
    model.placements.push_back(way == 0   ? whole()
                               : way == 1 ? cut(0, tensor.shape[0], true)
                                          : cut(1, 512, true));
  }
  return model;
}

/// The depth, but what precedes the first layer is read with it.
std::uint32_t stage_of(const Schedule& schedule, std::uint32_t tensor) {
  return std::max(schedule.layers.depth[tensor], plan::first_layer_depth);
}

/// A segment that a rank reads.
struct Reading {
  std::uint32_t wave = 0;
  std::uint32_t rank = 0;
  std::uint32_t tensor = 0;
  std::uint32_t stage = 0;
  std::uint64_t bytes = 0;
};

/// All of a plan, by wave.
std::vector<Reading> readings(const Schedule& schedule) {
  std::vector<Reading> all;
  plan::Slab slab;
  for (std::uint32_t wave = 0; wave < schedule.waves; ++wave) {
    for (std::uint32_t rank = 0; rank < schedule.world; ++rank) {
      plan::slab_at(schedule, wave, rank, slab);
      for (const plan::Segment& segment : slab.segments) {
        all.push_back({wave, rank, segment.tensor, stage_of(schedule, segment.tensor),
                       segment.end - segment.begin});
      }
    }
  }
  return all;
}

/// The last wave for which anybody reads some of a tensor.
std::map<std::uint32_t, std::uint32_t> last_waves(const std::vector<Reading>& readings) {
  std::map<std::uint32_t, std::uint32_t> last;
  for (const Reading& reading : readings) last[reading.tensor] = reading.wave;
  return last;
}

std::map<std::uint32_t, std::uint32_t> last_waves_of_stages(const std::vector<Reading>& readings) {
  std::map<std::uint32_t, std::uint32_t> last;
  for (const Reading& reading : readings) last[reading.stage] = reading.wave;
  return last;
}

std::uint64_t largest_segment(const Schedule& schedule, std::uint32_t stage) {
  std::uint64_t largest = 0;
  for (std::uint32_t i = 0; i < schedule.cuts.size(); ++i) {
    if (stage_of(schedule, i) != stage) continue;
    largest = std::max(largest, plan::Segments(schedule.cuts[i], schedule.window).step());
  }
  return largest;
}

/// Whether each rank reads as much of every stage, but for a segment.
void check_even(const Schedule& schedule, const std::vector<Reading>& readings) {
  std::map<std::uint32_t, std::vector<std::uint64_t>> bytes;  // by stage and rank
  for (const Reading& reading : readings) {
    auto& of_ranks = bytes[reading.stage];
    of_ranks.resize(schedule.world);
    of_ranks[reading.rank] += reading.bytes;
  }
  for (const auto& [stage, of_ranks] : bytes) {
    CAPTURE(stage);
    std::uint64_t total = 0;
    for (const std::uint64_t of_rank : of_ranks) total += of_rank;
    const std::uint64_t granule = largest_segment(schedule, stage);
    for (const std::uint64_t of_rank : of_ranks) {
      CHECK(of_rank * schedule.world <= total + granule * schedule.world);
      CHECK((of_rank + granule) * schedule.world >= total);
    }
  }
}

/// Before the wave that completes a stage, nothing later is read; nor, if it is the first, in it.
void check_order(const std::vector<Reading>& readings) {
  const auto last = last_waves_of_stages(readings);
  for (const Reading& reading : readings) {
    const auto before = last.lower_bound(reading.stage);
    if (before == last.begin()) continue;
    const auto& [stage, wave] = *std::prev(before);
    CAPTURE(stage, reading.stage, reading.rank);
    CHECK(reading.wave >= (stage == 1 ? wave + 1 : wave));
  }
}

void check_layers(const Schedule& schedule, const std::vector<Reading>& readings) {
  const auto last = last_waves_of_stages(readings);
  const plan::Completion completion(schedule, 0);
  std::vector<std::uint64_t> complete;
  for (std::uint32_t wave = 0; wave < schedule.waves; ++wave) {
    for (const plan::CompleteLayer& layer : completion.layers(wave)) {
      CHECK(layer.wave == wave);
      complete.push_back(layer.layer);
      CHECK(last.at(static_cast<std::uint32_t>(complete.size())) == wave);
    }
  }
  CHECK(complete == schedule.layers.numbers);
}

/// A target is complete after the last wave of its tensors, on the ranks that hold it.
void check_targets(const Schedule& schedule) {
  const auto last = last_waves(readings(schedule));
  std::vector<std::uint32_t> expected(schedule.targets.size());
  for (const plan::Use& use : schedule.uses) {
    const auto read = last.find(use.tensor);
    if (read == last.end()) continue;
    expected[use.target] = std::max(expected[use.target], read->second);
  }
  for (std::uint32_t rank = 0; rank < schedule.world; ++rank) {
    const plan::Completion completion(schedule, rank);
    std::map<std::uint32_t, std::uint32_t> found;
    for (std::uint32_t wave = 0; wave < std::max(schedule.waves, 1U); ++wave) {
      for (const auto& complete : completion.targets(wave)) found[complete.target] = wave;
    }
    for (std::uint32_t i = 0; i < expected.size(); ++i) {
      CAPTURE(rank, i);
      const std::uint32_t shard = rank % schedule.replica_size;
      REQUIRE((found.count(i) != 0) == holds(schedule.targets[i].placement, shard));
      if (found.count(i) != 0) CHECK(found[i] == expected[i]);
    }
  }
}

json recorded_models() {
  std::ifstream file(TEST_SOURCE_DIR "/tests/unit/models.json");
  return json::parse(file);
}

Catalog catalog_of_record(const json& model) {
  std::vector<Made> made;
  for (const auto& [name, record] : model.at("tensors").items()) {
    made.push_back({name, DType::F32, record.at(0).get<Shape>()});
  }
  return make_catalog({made});
}

}  // namespace

TEST_CASE("a layer is a numbered module of the largest stack", "[layers]") {
  const auto found = depths(
      {"model.layers.10.mlp.experts.3.up", "model.layers.2.norm", "model.layers.10.norm",
       "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight", "visual.blocks.0.norm",
       "visual.head.weight", "model.layer_extra.7", "mtp.layers.0.up", "unheard_of"});
  CHECK(found.at("model.layers.2.norm") == 1);
  CHECK(found.at("model.layers.10.norm") == 2);
  CHECK(found.at("model.layers.10.mlp.experts.3.up") == 2);
  for (const char* name : {"model.norm.weight", "lm_head.weight", "mtp.layers.0.up"}) {
    CAPTURE(name);
    CHECK(found.at(name) == 3);
  }
  for (const char* name : {"model.embed_tokens.weight", "visual.blocks.0.norm", "unheard_of",
                           "visual.head.weight", "model.layer_extra.7"}) {
    CAPTURE(name);
    CHECK(found.at(name) == 0);
  }
}

TEST_CASE("names at the ends of what a name can be", "[layers]") {
  CHECK(depths({"0", "1.a"}) == std::map<std::string, std::uint32_t>{{"0", 1}, {"1.a", 2}});
  CHECK(depths({"a", "", ".", "norm.weight", "t5"}) ==
        std::map<std::string, std::uint32_t>{
            {"a", 0}, {"", 0}, {".", 0}, {"norm.weight", 0}, {"t5", 0}});
}

TEST_CASE("what is not loaded counts no layer", "[layers]") {
  const Catalog catalog = make_catalog({{{"h.0.a", DType::U8, {4}},
                                         {"h.1.a", DType::U8, {4}},
                                         {"x.0.a", DType::U8, {99}},
                                         {"h.2.a", DType::U8, {0}},
                                         {"h.7.a", DType::U8, {4}}}});
  const Placement dropped = whole(Placement::Kind::dropped);
  const Plan plan = make_plan(catalog, {dropped, whole(), dropped, whole(), whole()}, 2);
  CHECK(plan.schedule().layers.numbers == std::vector<std::uint64_t>{1, 7});
}

TEST_CASE("the layouts of real models have the layers that their configs say", "[layers]") {
  for (const std::string& name : synth::builtin_layouts()) {
    CAPTURE(name);
    const synth::Layout layout = synth::load_layout(name);
    const json config = json::parse(layout.config);
    const char* key = config.contains("num_hidden_layers") ? "num_hidden_layers" : "n_layer";
    const Catalog catalog = catalog_of_layout(layout);
    const plan::Layers layers = replicated(catalog).schedule().layers;
    CHECK(layers.numbers == count_up(config.at(key).get<std::uint64_t>()));
    std::set<std::uint32_t> met(layers.depth.begin(), layers.depth.end());
    CHECK(met.size() == layers.numbers.size() + 2);
  }
}

TEST_CASE("layers are those of the stages of a pipeline", "[layers]") {
  // Reduced in width only, these have more bytes in another stack.
  const std::set<std::string> misleading{"kimi_k25",   "qwen2_5_omni_thinker",
                                         "qwen2_5_vl", "qwen2_vl",
                                         "qwen3_vl",   "qwen3_omni_moe_thinker"};
  const json models = recorded_models();
  for (const auto& [type, model] : models.items()) {
    if (misleading.contains(type)) continue;
    CAPTURE(type);
    const TpPlan rules = TpPlan::automatic(model.at("config").dump());
    const auto& pipeline = rules.rules().pipeline;
    if (!pipeline || !pipeline->layers || pipeline->layers < 2) continue;
    const auto stages = static_cast<std::uint32_t>(*pipeline->layers);
    const Catalog catalog = catalog_of_record(model);
    const plan::Layers layers = replicated(catalog).schedule().layers;
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
      const std::vector<bool> in_stage = rules.in_stage(catalog, {stage, stages});
      for (std::size_t i = 0; i < in_stage.size(); ++i) {
        const std::uint32_t depth = layers.depth[i];
        const bool is_later = depth > layers.numbers.size();
        const std::uint64_t expected = depth == 0 ? 0
                                       : is_later ? stages - 1
                                                  : layers.numbers[depth - 1];
        CAPTURE(catalog.tensors()[i].name, stage);
        // A tied embedding is in both the first and the last.
        if (stage == expected) CHECK(in_stage[i]);
        if (in_stage[i] && depth != 0 && !is_later) CHECK(stage == expected);
      }
    }
  }
}

TEST_CASE("in layer order, every rank reads an equal part of one layer after the other",
          "[layers]") {
  const auto seed = GENERATE(range(0, testing::cases(16)));
  const LayeredModel model = layered_model(static_cast<std::uint64_t>(seed));
  for (const std::uint32_t world : {1U, 3U, 4U, 8U}) {
    for (const std::uint64_t window : {4096U, 16384U, 1U << 20}) {
      for (const Assignment assignment : {Assignment::striped, Assignment::sliced}) {
        CAPTURE(seed, world, window, static_cast<int>(assignment));
        const Plan plan =
            make_plan(model.catalog, model.placements, world, by_layer(assignment, window));
        CHECK_NOTHROW(plan.prove());
        const std::vector<Reading> all = readings(plan.schedule());
        if (assignment == Assignment::striped) check_even(plan.schedule(), all);
        check_order(all);
        check_layers(plan.schedule(), all);
        for (const RankSummary& rank : plan.ranks()) {
          CHECK(std::ranges::adjacent_find(rank.files, std::greater_equal()) == rank.files.end());
        }
      }
    }
  }
}

TEST_CASE("before a layer is complete, at most a wave of later ones has been read", "[layers]") {
  const auto seed = GENERATE(range(0, testing::cases(20)));
  const LayeredModel model = layered_model(static_cast<std::uint64_t>(seed));
  const std::uint64_t window = 16384;
  const Plan plan =
      make_plan(model.catalog, model.placements, 4, by_layer(Assignment::striped, window));
  const std::vector<Reading> all = readings(plan.schedule());
  for (const auto& [stage, wave] : last_waves_of_stages(all)) {
    std::uint64_t later = 0;
    for (const Reading& reading : all) {
      if (reading.wave <= wave && reading.stage > stage) later += reading.bytes;
    }
    CAPTURE(seed, stage);
    CHECK(later <= (stage == 1 ? 0 : 4 * window));
  }
}

TEST_CASE("ranks read equally much, even if no layer divides evenly", "[layers]") {
  // Of each layer, one of four ranks has to read twice as much as the others.
  std::vector<Made> made;
  for (std::size_t i = 0; i < 5 * 20; ++i) {
    made.push_back({numbered("h.", i / 5) + numbered(".t", i % 5), DType::U8, {4096}});
  }
  const Plan plan = replicated(make_catalog({made}), 4, by_layer(Assignment::striped, 4096));
  for (const RankSummary& rank : plan.ranks()) CHECK(rank.read_bytes == 25 * 4096);
}

TEST_CASE("targets are complete after the last wave of their tensors", "[layers]") {
  const auto seed = GENERATE(range(0, testing::cases(100)));
  const auto number = static_cast<std::uint32_t>(seed);
  const RandomTargets model = random_targets(number);
  PlanOptions options = by_layer(Assignment::striped, 4096);
  if (seed % 3 == 0) options.order = Order::file;
  options.replicas = seed % 2 == 0 ? 2 : 1;
  CAPTURE(seed);
  const Plan plan = make_plan(model.catalog, model.targets, 4, options);
  check_targets(plan.schedule());
  check_targets(with_random_slices(plan, number));
}

TEST_CASE("a layer is complete only with all that takes something from it", "[layers]") {
  const Catalog catalog = make_catalog({{{"h.0.a", DType::U8, {4096}},
                                         {"h.0.b", DType::U8, {4096}},
                                         {"h.1.a", DType::U8, {4096}},
                                         {"h.2.a", DType::U8, {4096}}}});
  const Composition both{"both", {}, {8192}, 0, {{1, 0, 0, 4096}, {2, 0, 4096, 4096}}};
  const std::vector<Target> targets{
      {0, whole()}, {1, whole(), std::make_shared<const Composition>(both)}, {3, whole()}};
  const Plan plan = make_plan(catalog, targets, 1, by_layer(Assignment::striped, 4096));
  REQUIRE(plan.waves() == 4);
  const plan::Completion completion(plan.schedule(), 0);
  CHECK(completion.targets(0).size() == 1);
  CHECK(completion.layers(0).empty());
  CHECK(completion.layers(1).empty());
  REQUIRE(completion.layers(2).size() == 2);
  CHECK(completion.layers(2)[0].layer == 0);
  CHECK(completion.layers(2)[1].layer == 1);
  REQUIRE(completion.layers(3).size() == 1);
  CHECK(completion.layers(3)[0].layer == 2);
  CHECK(completion.targets(3).size() == 1);
  CHECK(completion.targets(4).empty());
}

TEST_CASE("in layer order, what is read once is striped, or else all is sliced",
          "[layers][choice]") {
  constexpr std::uint64_t mi = std::uint64_t{1} << 20;
  std::vector<std::vector<Made>> files(2);
  for (std::size_t i = 0; i < 16; ++i) {
    files[i / 8].push_back({numbered("h.", i) + ".a", DType::U8, {64, mi}});
  }
  const Catalog catalog = make_catalog(files);
  const auto chosen = [&](const Site& site, const std::vector<Placement>& placements,
                          std::uint32_t world = 2) {
    PlanOptions options = by_layer(Assignment::automatic, 0);
    options.site = site;
    const Plan plan = make_plan(catalog, placements, world, options);
    plan.prove();
    return plan.assignment();
  };
  CHECK(chosen({}, {16, cut(1, mi)}) == Assignment::striped);
  CHECK(chosen({}, {16, cut(1, mi)}, 1) == Assignment::striped);
  CHECK(chosen(cached(), {16, cut(0, 64)}) == Assignment::sliced);
  // What each rank needs alone, as of a sharded state.
  std::vector<Placement> singles;
  for (std::uint32_t i = 0; i < 16; ++i) singles.push_back(whole(Placement::Kind::single, i / 8));
  CHECK(chosen({}, singles) == Assignment::sliced);
  // In file order, mixed.
  Site fast_storage;
  fast_storage.costs.read_cold_direct_rank = fast_storage.costs.read_cold_direct_node = 20e9;
  std::vector<Placement> two_thirds;
  for (std::size_t i = 0; i < 16; ++i) two_thirds.push_back(i % 3 == 2 ? cut(1, mi) : cut(0, 64));
  CHECK(chosen(fast_storage, two_thirds) == Assignment::striped);
  // Not even: in file order, balanced would be considered.
  const Catalog one = make_catalog({{{"h.0.a", DType::U8, {32, mi}}}});
  const Plan uneven = replicated(one, 2, by_layer(Assignment::automatic, 0));
  CHECK(uneven.assignment() == Assignment::striped);
  CHECK_FALSE(has(uneven, "balanced"));
}
