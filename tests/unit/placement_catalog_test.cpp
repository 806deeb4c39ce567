// placement: all tensors of a catalog at once.
#include <string>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/placement.hpp"
#include "safeshuffle/target.hpp"

#include "support/catch.hpp"
#include "support/failure.hpp"
#include "support/placement.hpp"

using namespace safeshuffle;
using testing::failure;
using testing::tensor;

namespace {

Catalog catalog_with(std::vector<TensorInfo> tensors) {
  std::vector<FileInfo> files(1);
  files[0].path = "a.safetensors";
  return {std::move(files), std::move(tensors)};
}

Catalog two_linears(std::size_t layers) {
  std::vector<TensorInfo> tensors;
  for (std::size_t i = 0; i < layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i);
    tensors.push_back(tensor(layer + ".mlp.fc1.weight", {8, 8}));
    tensors.push_back(tensor(layer + ".mlp.fc2.weight", {8, 8}));
    tensors.push_back(tensor(layer + ".mlp.fc2.bias", {8}));
  }
  return catalog_with(std::move(tensors));
}

}  // namespace

TEST_CASE("placing a catalog is placing each of its tensors", "[placement]") {
  const auto rules = GENERATE(
      as<std::string>{}, R"({"layers.*.mlp.fc1": "colwise", "layers.*.mlp.fc2": "rowwise"})",
      R"({"layers.*.mlp.fc*": "colwise", "layers.3": "replicate", "layers.4.mlp.fc1": "rowwise"})");
  const TpPlan plan = TpPlan::from_json(rules, "", "rules.json");
  const Catalog catalog = two_linears(12);
  const std::vector<Placement> placements = plan.place_all(catalog, 4);
  REQUIRE(placements.size() == catalog.tensors().size());
  for (std::size_t i = 0; i < placements.size(); ++i) {
    const TensorInfo& info = catalog.tensors()[i];
    CAPTURE(info.name);
    CHECK(shard_shape(info.shape, placements[i], 1, 4) == testing::shard(plan, info, 1, 4));
  }
}

TEST_CASE("a key that matches no tensor is an error that names it", "[placement]") {
  struct Row {
    const char* rules;
    const char* message;
  };
  const auto row = GENERATE(
      Row{R"({"layerz.*.mlp.fc1": "colwise"})",
          R"(rules.json: "layerz.*.mlp.fc1": no tensor of the checkpoint matches "layerz.*.mlp.fc1"; it has names such as "model.layers.0.mlp.fc1.weight"; correct or remove it, or mark it as optional)"},
      Row{R"({"rules": [{"match": "layers.*.mlp.fc2.bais", "dim": 0}]})",
          R"("rules[0].match": no tensor of the checkpoint matches "layers.*.mlp.fc2.bais"; it has names such as "model.layers.0.mlp.fc2.bias"; correct or remove it, or mark it as optional)"},
      Row{R"({"base_model_prefix": "net", "tp_plan": {"layers.*.mlp.fc1": "colwise"}})",
          R"(it has names such as "model.layers.0.mlp.fc1.weight";)"},
      Row{R"({"b": "colwise", "c": "colwise", "d": "colwise", "a": "colwise", "e": "colwise", "f": "rowwise"})",
          R"(any of 6 keys: "a", "b", "c", "d", "e", ...; it has)"});
  const auto world = GENERATE(1U, 4U);
  const TpPlan plan = TpPlan::from_json(row.rules, "", "rules.json");
  const ErrorRecord record = failure<ConfigError>([&] { plan.place_all(two_linears(12), world); });
  CAPTURE(record.cause, row.message);
  CHECK(describe(record).find(row.message) != std::string::npos);
}

TEST_CASE("a plan of which something matches may name what the checkpoint lacks", "[placement]") {
  struct Row {
    const char* rules;
    std::vector<std::string> warnings;
  };
  const auto row = GENERATE(
      Row{R"({"tp_plan": {"layers.*.mlp.fc1": "colwise", "layers.*.mlp.fc2": "rowwise", "x": "colwise"}})",
          {R"(rules.json: no tensor of the checkpoint matches "x")"}},
      Row{R"({"layers.*.mlp.fc1": "colwise", "layers.*.mlp.fc2": "rowwise", "lm_head": "colwise"})",
          {}},
      Row{R"({"layers.*.mlp.fc1": "colwise", "model.layers.*.mlp.fc2": "colwise", "layers.*.mlp.fc2": "rowwise"})",
          {R"("model.layers.*.mlp.fc2" and "layers.*.mlp.fc2" of the plan match the same names; "model.layers.*.mlp.fc2" applies)"}},
      Row{R"({"layers.*.mlp.fc1": "colwise"})",
          {"whole on every rank, because no rule matches: weights of 256 of 544 bytes, of which "
           "'model.layers.*.mlp.fc*.weight' has 256"}});
  const TpPlan plan = TpPlan::from_json(row.rules, "", "rules.json");
  Catalog catalog = two_linears(2);
  std::vector<TensorInfo> tensors(catalog.tensors().begin(), catalog.tensors().end());
  for (TensorInfo& tensor : tensors) tensor.bytes = tensor.shape.size() == 1 ? 16 : 128;
  catalog = catalog_with(std::move(tensors));
  CHECK_NOTHROW(plan.place_all(catalog, 2));
  CHECK(plan.warnings(catalog, 2) == row.warnings);
}

TEST_CASE("a plan's key for fused experts applies to what the files store", "[placement]") {
  const TpPlan plan = TpPlan::from_json(
      R"({"layers.*.mlp.experts.gate_up_proj": "packed_colwise",
          "layers.*.mlp.experts.down_proj": "rowwise", "layers.*.mlp.experts": "moe_tp_experts"})",
      "", "rules.json");
  const std::string layer = "model.layers.0.";
  struct Row {
    std::string name;
    Shape shard;
  };
  const std::vector<Row> rows{{"mlp.experts.3.gate_proj.weight", {4, 8}},
                              {"mlp.experts.3.down_proj.weight", {8, 4}},
                              {"block_sparse_moe.experts.3.w3.weight", {4, 8}},
                              {"block_sparse_moe.experts.3.w2.weight", {8, 4}},
                              {"mlp.experts.gate_up_proj", {4, 8}},
                              {"mlp.router.weight", {8, 8}}};
  std::vector<TensorInfo> tensors;
  for (const Row& row : rows) {
    tensors.push_back(tensor(layer + row.name, {8, 8}));
    CAPTURE(row.name);
    CHECK(testing::shard(plan, tensors.back(), 1, 2) == row.shard);
  }
  CHECK(plan.warnings(catalog_with(tensors), 2).empty());
  CHECK(plan.to_json().find("w3") == std::string::npos);
}

TEST_CASE("a key that is marked, or whose word is about activations, need not match",
          "[placement]") {
  const auto rules = GENERATE(
      as<std::string>{},
      R"({"tp_plan": {"layers.*.mlp.fc1": "colwise", "x": "colwise"}, "optional": ["x"]})",
      R"({"tp_plan": {"layers.*.mlp.fc1": "colwise", "x": "colwise"}, "optional": "x"})",
      R"({"rules": [{"match": "x", "dim": 0, "optional": true}]})",
      R"({"rules": [{"match": "x", "style": "gather", "optional": true}]})",
      R"({"rules": [{"match": "x", "place": "drop", "optional": true}]})",
      R"({"layers.*.mlp": "local", "layers.*.mlp.act": "gather", "norm": "sequence_parallel"})",
      // What Hugging Face's plans have and checkpoints with tied weights lack.
      R"({"layers.*.mlp.fc1": "colwise", "lm_head": "colwise_rep"})", R"({"tp_plan": {}})");
  CAPTURE(rules);
  CHECK_NOTHROW(TpPlan::from_json(rules, "", "rules.json").place_all(two_linears(2), 4));
}

TEST_CASE("words that place parameters must match in every form", "[placement]") {
  const auto rules = GENERATE(as<std::string>{}, R"({"norm": "replicate"})",
                              R"({"tp_plan": {"lm_head": "colwise"}})",
                              R"({"rules": [{"match": "norm", "style": "gather"}]})",
                              R"({"rules": [{"match": "x", "dim": 0, "optional": false}]})");
  CAPTURE(rules);
  const TpPlan plan = TpPlan::from_json(rules, "", "rules.json");
  CHECK_THROWS_AS(plan.place_all(two_linears(2), 4), ConfigError);
}

TEST_CASE("a key whose tensors all have longer keys matches", "[placement]") {
  const TpPlan plan = TpPlan::from_json(
      R"({"tp_plan": {"layers.*.mlp": "colwise", "layers.*.mlp.fc*": "rowwise", "layers.*": "replicate",
          "layers.*.mlp.fc2": "colwise", "layers.*.mlp.fc1": "colwise"},
          "rules": [{"match": "layers.*.mlp.fc1", "place": "replicate"}]})",
      "", "rules.json");
  CHECK_NOTHROW(plan.place_all(two_linears(2), 4));
}

TEST_CASE("rules that are chosen for another model are an error", "[placement]") {
  const TpPlan plan = TpPlan::automatic(R"({"model_type": "llama", "num_attention_heads": 4})");
  const Catalog bert =
      catalog_with({tensor("bert.encoder.layer.0.attention.self.query.weight", {8, 8}),
                    tensor("bert.pooler.dense.weight", {8, 8})});
  const ErrorRecord record = failure<ConfigError>([&] { plan.place_all(bert, 2); });
  CHECK(record.file == "built-in rules 'llama'");
  CHECK(record.cause.find("the model_type in config.json selected these rules") !=
        std::string::npos);
}

TEST_CASE("the search for a name that begins like a key takes hostile names", "[placement]") {
  const TpPlan plan = TpPlan::from_json(R"({"a.b": "colwise"})", "", "rules.json");
  std::string dots(100'000, '.');
  CHECK_THROWS_AS(plan.place_all(catalog_with({tensor(dots, {8}), tensor("", {8})}), 2),
                  ConfigError);
  CHECK_THROWS_AS(plan.place_all(catalog_with({}), 2), ConfigError);
}

TEST_CASE("a summary counts tensors and stored bytes by placement", "[placement]") {
  TensorInfo empty = tensor("e", {0});
  std::vector<TensorInfo> tensors;
  for (const char* name : {"a.weight", "b.weight", "c.weight", "d.weight", "f.weight"}) {
    tensors.push_back(tensor(name, {8, 8}));
    tensors.back().bytes = 128 + tensors.size();
  }
  tensors.push_back(empty);
  const Catalog catalog = catalog_with(std::move(tensors));
  const TpPlan plan = TpPlan::from_json(
      R"({"rules": [{"match": "a", "dim": 0}, {"match": "b", "dim": 1},
                    {"match": "c", "place": {"rank": 1}}, {"match": "d", "place": "drop"}]})",
      "", "rules.json");
  const PlacementSummary summary = summarize(catalog, stored_targets(plan.place_all(catalog, 4)));
  CHECK(summary.partitioned.tensors == 2);
  CHECK(summary.partitioned.bytes == 129 + 130);
  CHECK(summary.single.tensors == 1);
  CHECK(summary.single.bytes == 131);
  CHECK(summary.dropped.tensors == 1);
  CHECK(summary.dropped.bytes == 132);
  CHECK(summary.replicated.tensors == 2);
  CHECK(summary.replicated.bytes == 133);
}

TEST_CASE("an error while placing a catalog names file and tensor", "[placement]") {
  const TpPlan plan = TpPlan::from_json(R"({"m": "colwise"})", "", "rules.json");
  try {
    plan.place_all(catalog_with({tensor("m.weight", {3, 2})}), 2);
    FAIL("no exception");
  } catch (const PlanError& error) {
    CHECK(error.record().file == "a.safetensors");
    CHECK(error.record().tensor == "m.weight");
  }
  CHECK_THROWS_AS(plan.place_all(catalog_with({}), 0), PlanError);
}
