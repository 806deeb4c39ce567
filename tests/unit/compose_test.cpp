// The section `compose` of rule files: what it makes of the tensors of a checkpoint, and where that
// is placed.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/loader.hpp"

#include "support/catalogs.hpp"
#include "support/catch.hpp"
#include "support/failure.hpp"
#include "support/in_memory_load.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

constexpr const char* small_config =
    R"({"model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 2,
        "tie_word_embeddings": true, "untied": false, "intermediate_size": 12})";

// Rules as for llama, with these entries.
TpPlan rules_with(const std::string& entries, const std::string& config_json = small_config) {
  return TpPlan::from_json(R"({
    "tp_plan": {"embed_tokens": "embedding_rowwise", "lm_head": "colwise",
                "layers.*.mlp.gate_proj": "colwise", "layers.*.mlp.up_proj": "colwise",
                "layers.*.mlp.down_proj": "rowwise"},
    "optional": ["embed_tokens", "lm_head", "layers.*.mlp.gate_proj", "layers.*.mlp.up_proj",
                 "layers.*.mlp.down_proj"],
    "rules": [
      {"match": "layers.*.self_attn.q_proj", "style": "colwise", "units": "query_heads",
       "optional": true},
      {"match": "layers.*.self_attn.k_proj", "style": "colwise", "units": "kv_heads",
       "replicate_units": true, "optional": true},
      {"match": "layers.*.self_attn.v_proj", "style": "colwise", "units": "kv_heads",
       "replicate_units": true, "optional": true}],
    "pipeline": {"embedding": "embed_tokens", "layers": "layers", "last": "norm",
                 "head": "lm_head", "count": 2},
    "compose": )" + entries + "}",
                           config_json, "rules.json");
}

constexpr const char* qkv = R"([{"join": ["layers.*.self_attn.q_proj.weight",
  "layers.*.self_attn.k_proj.weight", "layers.*.self_attn.v_proj.weight"],
  "as": "layers.*.self_attn.qkv_proj.weight", "dim": 0}])";

constexpr const char* tie = R"([{"tie": ["model.embed_tokens.weight", "lm_head.weight"]}])";

std::vector<Made> attention(const std::string& layer) {
  const std::string prefix = "model.layers." + layer + ".self_attn.";
  return {{prefix + "k_proj.weight", DType::F16, {4, 6}},
          {prefix + "q_proj.weight", DType::F16, {8, 6}},
          {prefix + "v_proj.weight", DType::F16, {4, 6}}};
}

std::vector<Target> targets_of(const TpPlan& rules, const std::vector<std::vector<Made>>& files,
                               std::uint32_t world, const Selection& selection = {}) {
  Options options;
  options.selection = selection;
  return select_targets({make_catalog(files), {}, nullptr}, rules, options, world);
}

/// The targets must be possible: planned, proved, and loaded in memory.
std::vector<Target> loaded(const TpPlan& rules, const std::vector<std::vector<Made>>& files,
                           std::uint32_t world) {
  std::vector<Target> targets = targets_of(rules, files, world);
  PlanOptions options;
  options.assignment = Assignment::round_robin;
  options.window = 4096;
  const Plan plan = make_plan(make_catalog(files), targets, world, options);
  CHECK_NOTHROW(plan.prove());
  CHECK(InMemoryLoad(plan.schedule()).result_is_right());
  return targets;
}

const Target& target(const std::vector<Target>& targets, const std::string& name) {
  for (const Target& candidate : targets) {
    if (candidate.composition && candidate.composition->name == name) return candidate;
  }
  FAIL("no target is composed as " << name);
  return targets.front();
}

std::vector<std::string> names_of(const std::vector<Target>& targets,
                                  const std::vector<std::vector<Made>>& files) {
  const Catalog catalog = make_catalog(files);
  std::vector<std::string> names;
  for (const Target& each : targets) {
    if (each.placement.kind == Placement::Kind::dropped) continue;
    names.push_back(name_of(each, catalog));
    if (!each.composition) continue;
    const std::vector<std::string>& aliases = each.composition->aliases;
    names.insert(names.end(), aliases.begin(), aliases.end());
  }
  std::ranges::sort(names);
  return names;
}

std::vector<Interval> kept(const Target& target, std::uint32_t rank, std::uint32_t world) {
  std::vector<Interval> intervals;
  const Split& split = target.placement.split;
  append_intervals(split, target.composition->shape[split.axis], rank, world, intervals);
  return intervals;
}

std::string parse_error(const std::string& entries) {
  return describe(failure<ConfigError>([&] { rules_with(entries); }));
}

template <class Exception>
std::string error(const std::string& entries, const std::vector<std::vector<Made>>& files,
                  std::uint32_t world = 2) {
  return describe(failure<Exception>([&] { targets_of(rules_with(entries), files, world); }));
}

using Names = std::vector<std::string>;

bool says(const std::string& message, const std::vector<std::string>& parts) {
  return std::ranges::all_of(parts, [&](const std::string& part) {
    const bool found = message.find(part) != std::string::npos;
    if (!found) UNSCOPED_INFO("lacks '" << part << "': " << message);
    return found;
  });
}

}  // namespace

TEST_CASE("q, k and v are joined in every layer, each rank's rows in this order", "[compose]") {
  std::vector<std::vector<Made>> files{attention("0"), attention("11")};
  files[1].push_back({"model.norm.weight", DType::F16, {6}});
  const std::uint32_t world = GENERATE(1U, 2U, 4U);
  const auto targets = loaded(rules_with(qkv), files, world);
  CHECK(names_of(targets, files) == Names{"model.layers.0.self_attn.qkv_proj.weight",
                                          "model.layers.11.self_attn.qkv_proj.weight",
                                          "model.norm.weight"});
  const Target& joined = target(targets, "model.layers.11.self_attn.qkv_proj.weight");
  // In the order of the catalog: k, q, v of layer 0, then of layer 11.
  CHECK(joined.composition->fills == std::vector<Fill>{{4, 0, 0, 8}, {3, 0, 8, 4}, {5, 0, 12, 4}});
  CHECK(joined.composition->shape == Shape{16, 6});
  CHECK(joined.placement.split.sharing == Sharing{.units = 1, .replicate = true});
  if (world == 2) CHECK(kept(joined, 1, 2) == std::vector<Interval>{{4, 4}, {10, 2}, {14, 2}});
  // Two ranks share each of the two KV heads of two rows.
  if (world == 4) CHECK(kept(joined, 1, 4) == std::vector<Interval>{{2, 2}, {8, 2}, {12, 2}});
  if (world == 4) CHECK(kept(joined, 2, 4) == std::vector<Interval>{{4, 2}, {10, 2}, {14, 2}});
}

TEST_CASE("a new name has the base-model prefix if the entry leaves it out", "[compose]") {
  const std::vector<std::vector<Made>> files{
      {{"model.a.0", DType::U8, {2}}, {"model.b.0", DType::U8, {2}}}};
  const auto name = [&](const std::string& parts, const std::string& as) {
    const auto targets = targets_of(
        rules_with(R"([{"join": [)" + parts + R"(], "as": ")" + as + R"(", "dim": 0}])"), files, 1);
    return names_of(targets, files).front();
  };
  CHECK(name(R"("a.*", "b.*")", "ab.*") == "model.ab.0");
  CHECK(name(R"("model.a.*", "b.*")", "ab.*") == "ab.0");
  CHECK(name(R"("a.*", "model.b.*")", "model.ab.*") == "model.ab.0");
}

TEST_CASE("the placement of joined tensors follows from that of their parts", "[compose]") {
  const std::vector<std::vector<Made>> files{{{"layers.0.mlp.gate_proj.weight", DType::U8, {8, 4}},
                                              {"layers.0.mlp.up_proj.weight", DType::U8, {8, 4}},
                                              {"layers.0.mlp.down_proj.weight", DType::U8, {8, 4}},
                                              {"layers.0.x.weight", DType::U8, {8, 4}},
                                              {"layers.0.y.weight", DType::U8, {4, 4}}}};
  const auto join = [](const std::string& a, const std::string& b, const std::string& dim) {
    return R"([{"join": ["layers.*.)" + a + R"(.weight", "layers.*.)" + b +
           R"(.weight"], "as": "layers.*.new", "dim": )" + dim + "}]";
  };
  const auto placement = [&](const std::string& a, const std::string& b, const std::string& dim) {
    return target(loaded(rules_with(join(a, b, dim)), files, 2), "layers.0.new").placement;
  };
  const Placement rows = placement("mlp.gate_proj", "mlp.up_proj", "0");
  CHECK(rows.split == Split{0, {.units = 1, .replicate = true}, {{8, {8}}, {8, {8}}}});
  CHECK(placement("mlp.gate_proj", "mlp.up_proj", "-2") == rows);
  CHECK(placement("mlp.gate_proj", "mlp.up_proj", "1") == cut(0, 8));
  CHECK(placement("x", "y", "0") == whole());
  CHECK(says(error<PlanError>(join("mlp.gate_proj", "x", "0"), files),
             {"the rules place its parts 'layers.0.mlp.gate_proj.weight' and "
              "'layers.0.x.weight' in ways that cannot be joined along axis 0"}));
  CHECK(says(error<PlanError>(join("x", "mlp.gate_proj", "0"), files),
             {"in ways that cannot be joined"}));
  CHECK(says(error<PlanError>(join("mlp.gate_proj", "mlp.down_proj", "0"), files),
             {"in ways that cannot be joined"}));
  CHECK(says(error<PlanError>(join("x", "y", "1"), files),
             {"cannot be joined with 'layers.0.x.weight' along axis 1"}));
  CHECK(says(error<PlanError>(join("x", "y", "2"), files), {"no dimension 2"}));
}

TEST_CASE("a tensor is split in proportion, its parts placed by rules for their names",
          "[compose]") {
  const std::string entry = R"([{"split": "layers.*.mlp.gate_up_proj.weight",
    "into": ["layers.*.mlp.gate_proj.weight", "layers.*.mlp.up_proj.weight"], "dim": 0,
    "sizes": )";
  const std::vector<std::vector<Made>> files{
      {{"layers.3.mlp.gate_up_proj.weight", DType::F32, {24, 2}}}};
  const auto targets = loaded(rules_with(entry + R"([1, "num_key_value_heads"]}])"), files, 2);
  REQUIRE(targets.size() == 2);
  const Target& up = target(targets, "layers.3.mlp.up_proj.weight");
  CHECK(up.composition->fills == std::vector<Fill>{{0, 8, 0, 16}});
  CHECK(up.placement == cut(0, 16));
  CHECK(kept(up, 1, 2) == std::vector<Interval>{{8, 8}});
  CHECK(target(targets, "layers.3.mlp.gate_proj.weight").composition->shape == Shape{8, 2});
  CHECK(says(error<PlanError>(entry + "[2, 3]}]", files),
             {"axis 0 (24 elements) does not consist of 5 equal units"}));
}

TEST_CASE("tied tensors are one, whichever names the files have", "[compose]") {
  const Made embed{"model.embed_tokens.weight", DType::F16, {8, 4}};
  const Made head{"lm_head.weight", DType::F16, {8, 4}};
  const auto [file, name, alias] = GENERATE_COPY(
      table<std::vector<Made>, std::string, std::string>({{{embed}, embed.name, head.name},
                                                          {{head}, head.name, embed.name},
                                                          {{head, embed}, embed.name, head.name}}));
  const auto targets = loaded(rules_with(tie), {file}, 2);
  REQUIRE(targets.size() == 1);
  CHECK(targets[0].composition->name == name);
  CHECK(targets[0].composition->aliases == Names{alias});
  CHECK(targets[0].placement == cut(0, 8));
  const Plan plan = make_plan(make_catalog({file}), targets, 2);
  CHECK(plan.ranks()[0].read_bytes + plan.ranks()[1].read_bytes == 64);
}

TEST_CASE("\"if\" names a boolean of config.json", "[compose]") {
  const std::vector<std::vector<Made>> both{
      {{"lm_head.weight", DType::F16, {8, 4}}, {"model.embed_tokens.weight", DType::F16, {8, 4}}}};
  const std::vector<std::vector<Made>> one{{both[0][0]}};
  const auto count = [](const std::string& field, const std::vector<std::vector<Made>>& files) {
    const std::string entry =
        R"([{"tie": ["model.embed_tokens.weight", "lm_head.weight"], "if": ")" + field + "\"}]";
    const auto targets = targets_of(rules_with(entry), files, 2);
    return std::pair(targets.size(), names_of(targets, files).size());
  };
  CHECK(count("tie_word_embeddings", both) == std::pair(1UL, 2UL));
  CHECK(count("untied", both) == std::pair(2UL, 2UL));
  CHECK(count("untied", one) == std::pair(1UL, 1UL));
  // If config.json does not say, a checkpoint with only one of them must use it for both.
  CHECK(count("absent", both) == std::pair(2UL, 2UL));
  CHECK(count("absent", one) == std::pair(1UL, 2UL));
}

TEST_CASE("tied tensors must be alike and placed alike", "[compose]") {
  const std::string entry = R"([{"tie": ["embed_tokens.weight", "other"]}])";
  const Made embed{"embed_tokens.weight", DType::F16, {8, 4}};
  CHECK(says(error<PlanError>(entry, {{embed, {"other", DType::F16, {8, 5}}}}),
             {"another shape or type than 'embed_tokens.weight'"}));
  CHECK(says(error<PlanError>(entry, {{embed}}),
             {"tied to 'other', which the rules place differently"}));
  CHECK(says(error<PlanError>(R"([{"tie": ["a", "b"]}])", {{{"a", DType::F16, {}}}}),
             {"a scalar cannot be tied"}));
}

namespace {

/// Of a checkpoint of two files of which one says that the head is the embedding.
Checkpoint with_alias(const std::vector<std::vector<Made>>& files) {
  Checkpoint checkpoint{make_catalog(files), {}, nullptr};
  checkpoint.aliases = {{"lm_head.weight", "model.embed_tokens.weight"}};
  return checkpoint;
}

const std::vector<std::vector<Made>> embedding_only{
    {{"model.embed_tokens.weight", DType::F16, {8, 4}}}, {{"model.norm.weight", DType::F16, {8}}}};

std::vector<Target> loaded_with_alias(const TpPlan& rules, std::uint32_t world,
                                      const Selection& selection = {}) {
  Options options;
  options.selection = selection;
  std::vector<Target> targets = select_targets(with_alias(embedding_only), rules, options, world);
  PlanOptions planning;
  planning.window = 4096;
  const Plan plan = make_plan(make_catalog(embedding_only), targets, world, planning);
  CHECK_NOTHROW(plan.prove());
  CHECK(InMemoryLoad(plan.schedule()).result_is_right());
  return targets;
}

}  // namespace

TEST_CASE("an alias is the same memory if it is placed as its tensor", "[compose]") {
  const TpPlan rules = GENERATE(rules_with("[]"), rules_with(tie), TpPlan::replicate_all());
  const auto targets = loaded_with_alias(rules, 2);
  REQUIRE(targets.size() == 2);
  const Target& tied = target(targets, "model.embed_tokens.weight");
  CHECK(tied.composition->aliases == Names{"lm_head.weight"});
}

TEST_CASE("an alias that is placed otherwise has its own memory", "[compose]") {
  const TpPlan rules =
      TpPlan::from_json(R"({"tp_plan": {"lm_head": "colwise"}})", small_config, "rules.json");
  const auto targets = loaded_with_alias(rules, 2);
  REQUIRE(targets.size() == 3);
  CHECK(target(targets, "lm_head.weight").placement == cut(0, 8));
  CHECK(targets[0].placement.kind == Placement::Kind::replicated);
  CHECK(targets[0].composition == nullptr);
}

TEST_CASE("an alias is padded as its tensor, and selected by its name", "[compose]") {
  const TpPlan rules = rules_with(R"([{"pad": "embed_tokens.weight", "dim": 0, "multiple": 16}])");
  const auto targets = loaded_with_alias(rules, 4);
  CHECK(targets.size() == 2);
  CHECK(target(targets, "model.embed_tokens.weight").composition->shape == Shape{16, 4});
  const auto names = [&](const Selection& selection) {
    return names_of(loaded_with_alias(rules, 2, selection), embedding_only);
  };
  CHECK(names({{"lm_head.*"}, {}}) == Names{"lm_head.weight"});
  CHECK(names({{}, {"lm_head.*"}}) == Names{"model.embed_tokens.weight", "model.norm.weight"});
}

TEST_CASE("a dimension is padded to a multiple, with zeros", "[compose]") {
  const auto extent = static_cast<std::uint64_t>(GENERATE(1, 6, 7, 8, 9, 16));
  const std::uint64_t padded = (extent + 7) / 8 * 8;
  const std::string entry = R"([{"pad": "embed_tokens.weight", "dim": -2, "multiple": 8}])";
  const std::vector<std::vector<Made>> files{
      {{"model.embed_tokens.weight", DType::F32, {extent, 3}}}};
  for (const std::uint32_t world : {1U, 2U, 4U}) {
    const auto targets = loaded(rules_with(entry), files, world);
    REQUIRE(targets.size() == 1);
    CHECK(shape_of(targets[0], make_catalog(files)) == Shape{padded, 3});
    CHECK(shard_shape({padded, 3}, targets[0].placement, world - 1, world) ==
          Shape{padded / world, 3});
    CHECK((targets[0].composition == nullptr) == (extent == padded));
  }
}

TEST_CASE("a tied tensor is padded under any of its names", "[compose]") {
  const std::string name = GENERATE("model.embed_tokens.weight", "lm_head.weight");
  const std::string entries =
      R"([{"pad": ")" + name + R"(", "dim": 0, "multiple": 4},)" + std::string(tie).substr(1);
  const auto targets = loaded(rules_with(entries), {{{"lm_head.weight", DType::F16, {6, 4}}}}, 4);
  REQUIRE(targets.size() == 1);
  CHECK(targets[0].composition->aliases == Names{"model.embed_tokens.weight"});
  CHECK(targets[0].composition->shape == Shape{8, 4});
  CHECK(targets[0].placement == cut(0, 8));
}

TEST_CASE("padding that cannot be is refused", "[compose]") {
  const std::vector<std::vector<Made>> files{{{"a", DType::F32, {6, 3}}, {"b", DType::U8, {}}}};
  CHECK(
      says(error<PlanError>(R"([{"pad": "a", "dim": 0, "multiple": 1000000000000000000}])", files),
           {"too large if it is padded to a multiple of"}));
  CHECK(says(error<PlanError>(R"([{"pad": "b", "dim": 0, "multiple": 2}])", files),
             {"it has no dimension 0"}));
  CHECK(says(error<ConfigError>(R"([{"pad": "a", "dim": 0, "multiple": 4},
                                    {"pad": "a", "dim": 1, "multiple": 4}])",
                                files),
             {"another entry pads 'a'"}));
}

TEST_CASE("entries that match nothing, or only partly", "[compose]") {
  const std::string entry = R"([{"join": ["layers.*.a", "layers.*.b"], "as": "layers.*.ab",
    "dim": 0)";
  const std::vector<std::vector<Made>> neither{{{"layers.0.c", DType::U8, {2}}}};
  const std::vector<std::vector<Made>> one{{{"layers.0.b", DType::U8, {2}}}};
  const std::string message = error<ConfigError>(entry + "}]", neither);
  CHECK(says(message, {"rules.json",
                       "\"compose[0]\": no tensor of the checkpoint matches "
                       "\"layers.*.a\"; it has names such as \"layers.0.c\"",
                       "mark it as optional"}));
  CHECK(targets_of(rules_with(entry + R"(, "optional": true}])"), neither, 2).size() == 1);
  for (const char* end : {"}]", R"(, "optional": true}])"}) {
    CHECK(
        says(error<PlanError>(entry + end, one),
             {"tensor 'layers.0.b'", "joins it with 'layers.0.a', which the checkpoint does not"}));
  }
}

TEST_CASE("names that collide, and entries about the same tensor", "[compose]") {
  const std::vector<std::vector<Made>> files{
      {{"a", DType::U8, {2}}, {"b", DType::U8, {2}}, {"c", DType::U8, {2}}}};
  const std::string ab = R"({"join": ["a", "b"], "as": "new", "dim": 0})";
  const auto cause = [&](const std::string& entries) {
    return error<ConfigError>("[" + entries + "]", files);
  };
  CHECK(says(cause(R"({"join": ["a", "b"], "as": "c", "dim": 0})"),
             {"the checkpoint already has a tensor 'c'"}));
  CHECK(says(cause(ab + R"(, {"tie": ["c", "new"]})"),
             {"another entry gives the name 'new' as well"}));
  CHECK(says(cause(ab + R"(, {"join": ["a", "c"], "as": "ac", "dim": 0})"),
             {"another entry is about 'a' as well"}));
  CHECK(says(cause(ab + R"(, {"pad": "a", "dim": 0, "multiple": 4})"),
             {"another entry is about 'a' as well"}));
  CHECK(says(cause(ab + R"(, {"tie": ["b", "x"]})"), {"another entry is about 'b' as well"}));
}

TEST_CASE("malformed entries are errors that name them", "[compose]") {
  CHECK(says(parse_error("{}"), {R"("compose": not a list)"}));
  CHECK(says(parse_error("[{}]"), {R"("compose[0]": an entry has "join")"}));
  CHECK(says(parse_error("[1]"), {"not a JSON object"}));
  CHECK(
      says(parse_error(R"([{"join": ["a", "b"], "as": "c"}])"), {R"("compose[0].dim": missing)"}));
  CHECK(says(parse_error(R"([{"join": "a", "as": "c", "dim": 0}])"),
             {R"("compose[0].join": not a list of two or more names)"}));
  CHECK(says(parse_error(R"([{"join": ["a", "a"], "as": "c", "dim": 0}])"),
             {R"("a" is there twice)"}));
  CHECK(says(parse_error(R"([{"join": ["a.*", "b.*"], "as": "c", "dim": 0}])"),
             {R"("compose[0].as")", R"("c" and "a.*" must have the same number of "*")"}));
  CHECK(says(parse_error(R"([{"join": ["a", "b"], "as": "c", "dim": 0, "tie": 1}])"),
             {R"("compose[0].tie": unknown field)"}));
  CHECK(says(parse_error(R"([{"split": "a", "into": ["b", "c"], "dim": 0, "sizes": [1]}])"),
             {"not one size for each name"}));
  CHECK(says(parse_error(R"([{"split": "a", "into": ["b", "c"], "dim": 0, "sizes": [1, "x"]}])"),
             {"config.json does not give 'x'"}));
  CHECK(says(parse_error(R"([{"pad": "a", "dim": 0}])"), {R"("compose[0].multiple": missing)"}));
  CHECK(
      says(parse_error(R"([{"pad": "a", "dim": 0, "multiple": 0}])"), {"not a positive integer"}));
  CHECK(says(parse_error(R"([{"tie": ["a", ""]}])"), {"empty"}));
  CHECK(says(parse_error(R"([{"tie": ["a", "b"], "if": "num_attention_heads"}])"),
             {"not true or false"}));
}

TEST_CASE("what is composed is selected by its names, and is in the stage of its parts",
          "[compose]") {
  std::vector<std::vector<Made>> files{attention("0"), attention("1")};
  files[0].push_back({"model.embed_tokens.weight", DType::F16, {8, 6}});
  const TpPlan rules = rules_with(std::string(qkv).substr(0, std::string(qkv).size() - 1) + "," +
                                  std::string(tie).substr(1));
  const auto names = [&](const Selection& selection) {
    return names_of(targets_of(rules, files, 2, selection), files);
  };
  const Names tied{"lm_head.weight", "model.embed_tokens.weight"};
  CHECK(names({{"*.0.*.qkv_*"}, {}}) == Names{"model.layers.0.self_attn.qkv_proj.weight"});
  CHECK(names({{"lm_head*"}, {}}) == tied);
  CHECK_THROWS_AS(names({{"*.q_proj.*"}, {}}), ConfigError);
  CHECK(names({{}, {}, PipelineStage{0, 2}}) ==
        Names{tied[0], tied[1], "model.layers.0.self_attn.qkv_proj.weight"});
  CHECK(names({{}, {"lm_head*"}, PipelineStage{1, 2}}) ==
        Names{"model.layers.1.self_attn.qkv_proj.weight"});
}

namespace {

// A sharded state of a tensor of 8 rows, saved by two ranks along `axis`.
Checkpoint saved_by_two(std::uint32_t axis) {
  Shape shard{8, 4};
  shard[axis] /= 2;
  const Catalog one = make_catalog({{{"gate", DType::U8, shard}, {"up", DType::U8, shard}}});
  std::vector<FileInfo> infos;
  std::vector<TensorInfo> tensors;
  ShardedState state;
  state.world = 2;
  state.recorded = true;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    infos.push_back(one.files()[0]);
    state.rank_of_file.push_back(rank);
    for (TensorInfo tensor : one.tensors()) {
      tensor.file = rank;
      tensors.push_back(std::move(tensor));
      const std::uint64_t half = shard[axis];
      state.shards.push_back(
          std::make_shared<const SavedShard>(SavedShard{{8, 4}, axis, {{rank * half, half}}}));
    }
  }
  return {Catalog(std::move(infos), std::move(tensors), Catalog::Names::by_file),
          {},
          std::make_shared<const ShardedState>(std::move(state))};
}

}  // namespace

TEST_CASE("shards of a sharded state are joined twice along the same axis", "[compose]") {
  const TpPlan rules = rules_with(R"([{"join": ["gate", "up"], "as": "both", "dim": 0}])");
  Options options;
  options.tp_plan = "rules.json";
  const Checkpoint checkpoint = saved_by_two(0);
  const std::uint32_t world = GENERATE(1U, 2U, 3U);
  const auto targets = select_targets(checkpoint, rules, options, world);
  REQUIRE(targets.size() == 1);
  CHECK(targets[0].composition->name == "both");
  // In the order of the catalog: gate and up of rank 0, then those of rank 1.
  CHECK(targets[0].composition->fills ==
        std::vector<Fill>{{0, 0, 0, 4}, {2, 0, 4, 4}, {1, 0, 8, 4}, {3, 0, 12, 4}});
  const Plan plan = make_plan(checkpoint.catalog, targets, world);
  CHECK_NOTHROW(plan.prove());
  CHECK(says(
      describe(failure<PlanError>([&] { select_targets(saved_by_two(1), rules, options, world); })),
      {"along axis 0 of 'gate', which was saved in shards along axis 1"}));
}
