// placement: rule files, the vocabulary, and which rule is about which tensor.
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "safeshuffle/error.hpp"
#include "safeshuffle/placement.hpp"

#include "support/catch.hpp"
#include "support/contains.hpp"
#include "support/failure.hpp"
#include "support/placement.hpp"

using namespace safeshuffle;
using testing::contains;
using testing::failure;
using testing::kept;
using testing::shard;
using testing::tensor;

namespace {

constexpr const char* heads = R"({"num_attention_heads": 8, "num_key_value_heads": 2})";

TpPlan parse(const std::string& rules, const std::string& config = "") {
  return TpPlan::from_json(rules, config, "rules.json");
}

TpPlan one_word(const std::string& word) {
  return parse(R"({"m": ")" + word + "\"}");
}

TpPlan one_rule(const std::string& fields, const std::string& config = heads) {
  return parse(R"({"rules": [{"match": "m", )" + fields + "}]}", config);
}

/// The message of the error that `rules` gives; it must be about rules.json or config.json.
std::string config_error(const std::string& rules, const std::string& config = "") {
  try {
    parse(rules, config);
  } catch (const ConfigError& error) {
    CHECK_FALSE(error.record().file.empty());
    return error.what();
  }
  return "no error";
}

template <class Call>
std::string plan_error(const Call& call) {
  try {
    call();
  } catch (const PlanError& error) {
    return error.what();
  }
  return "no error";
}

bool is_replicated(const TpPlan& plan, const TensorInfo& info) {
  return plan.place(info, 4).kind == Placement::Kind::replicated;
}

}  // namespace

TEST_CASE("every word cuts weight and bias as Hugging Face does", "[placement]") {
  struct Row {
    const char* word;
    Shape weight;  // of [8, 12]
    Shape stack;   // of [4, 8, 12]
    Shape bias;    // of [8]
  };
  const Row row = GENERATE(
      Row{"colwise", {2, 12}, {4, 2, 12}, {2}}, Row{"colwise_rep", {2, 12}, {4, 2, 12}, {2}},
      Row{"colwise_gather_output", {2, 12}, {4, 2, 12}, {2}},
      Row{"local_colwise", {2, 12}, {4, 2, 12}, {2}},
      Row{"packed_colwise", {2, 12}, {4, 2, 12}, {2}}, Row{"rowwise", {8, 3}, {4, 8, 3}, {8}},
      Row{"rowwise_rep", {8, 3}, {4, 8, 3}, {8}},
      Row{"rowwise_split_input", {8, 3}, {4, 8, 3}, {8}},
      Row{"local_rowwise", {8, 3}, {4, 8, 3}, {8}},
      Row{"embedding_rowwise", {2, 12}, {1, 8, 12}, {8}},
      Row{"embedding_colwise", {8, 3}, {4, 2, 12}, {8}}, Row{"replicate", {8, 12}, {4, 8, 12}, {8}},
      Row{"sequence_parallel", {8, 12}, {4, 8, 12}, {8}}, Row{"gather", {8, 12}, {4, 8, 12}, {8}},
      Row{"local", {8, 12}, {4, 8, 12}, {8}}, Row{"local_params", {8, 12}, {4, 8, 12}, {8}},
      Row{"all_reduce", {8, 12}, {4, 8, 12}, {8}},
      Row{"replicated_with_grad_allreduce", {8, 12}, {4, 8, 12}, {8}},
      Row{"mla_kv_a_proj", {8, 12}, {4, 8, 12}, {8}},
      Row{"moe_tp_experts", {8, 12}, {4, 8, 12}, {8}},
      Row{"moe_identity_expert", {8, 12}, {4, 8, 12}, {8}},
      Row{"ep_router", {8, 12}, {4, 8, 12}, {8}},
      Row{"ep_dispatch_experts", {8, 12}, {4, 8, 12}, {8}},
      Row{"grouped_gemm", {2, 12}, {1, 8, 12}, {2}});
  CAPTURE(row.word);
  const TpPlan plan = one_word(row.word);
  CHECK(shard(plan, tensor("m.weight", {8, 12}), 3, 4) == row.weight);
  CHECK(shard(plan, tensor("m", {4, 8, 12}), 3, 4) == row.stack);
  CHECK(shard(plan, tensor("m.bias", {8}), 3, 4) == row.bias);
  CHECK(shard(plan, tensor("m.scale", {}), 3, 4) == Shape{});
  CHECK(shard(plan, tensor("m.weight", {8, 12}), 0, 1) == Shape{8, 12});
  CHECK(shard(plan, tensor("m.weight", {0, 0}), 3, 4) == Shape{0, 0});
}

TEST_CASE("packed words cut each of the two fused blocks", "[placement]") {
  const TensorInfo weight = tensor("m.weight", {8, 16});
  CHECK(kept(one_word("packed_colwise"), weight, 1, 2) == std::vector<Interval>{{2, 2}, {6, 2}});
  const auto rows = GENERATE(as<std::string>{}, "packed_rowwise", "local_packed_rowwise");
  CHECK(one_word(rows).place(weight, 2).split.axis == 1);
  CHECK(kept(one_word(rows), weight, 0, 2) == std::vector<Interval>{{0, 4}, {8, 4}});
  CHECK(is_replicated(one_word(rows), tensor("m.bias", {16})));
}

TEST_CASE("a parameter named bias is a bias, however many dimensions it has", "[placement]") {
  CHECK(shard(one_word("colwise"), tensor("m.bias", {4, 8}), 0, 2) == Shape{4, 4});
  CHECK(is_replicated(one_word("rowwise"), tensor("m.bias", {4, 8})));
  CHECK(is_replicated(one_word("rowwise"), tensor("m.scale", {8})));
}

TEST_CASE("an unknown style is refused", "[placement]") {
  const std::string message = config_error(R"({"a.b": "colwize"})");
  CHECK(contains(message, "rules.json: \"a.b\": unknown style 'colwize'"));
  CHECK(contains(message, "known styles: colwise, "));
  CHECK(contains(message, "grouped_gemm"));
}

TEST_CASE("digits become stars, in whole components or everywhere", "[placement]") {
  const TensorInfo fc1 = tensor("layers.12.mlp.fc1.weight", {8, 8});
  CHECK_FALSE(is_replicated(parse(R"({"layers.*.mlp.fc1": "colwise"})"), fc1));
  CHECK_FALSE(is_replicated(parse(R"({"layers.*.mlp.fc*": "colwise"})"), fc1));
  CHECK_FALSE(is_replicated(parse(R"({"layers.12.mlp.fc1": "colwise"})"), fc1));
  CHECK_FALSE(is_replicated(parse(R"({"layers.12.mlp.fc*": "colwise"})"), fc1));
  CHECK(is_replicated(parse(R"({"layers.*.mlp.fc2": "colwise"})"), fc1));
  CHECK(is_replicated(parse(R"({"layers.1.mlp.fc1": "colwise"})"), fc1));
  CHECK(is_replicated(parse(R"({"layers.*.mlp": "replicate", "layers.*": "colwise"})"), fc1));
  CHECK(is_replicated(parse(R"({"*.weight": "colwise"})"), fc1));
}

TEST_CASE("the longest match wins, and of equally long ones the literal one", "[placement]") {
  const TpPlan plan = parse(R"({
    "layers": "rowwise",
    "layers.*.mlp": "colwise",
    "layers.*.mlp.up.bias": "replicate",
    "layers.3.mlp": "replicate",
    "layers.*.mlp.fc*": "replicate",
    "layers.*.mlp.fc2": "colwise"})");
  CHECK(shard(plan, tensor("layers.0.attn.q.weight", {8, 8}), 0, 4) == Shape{8, 2});
  CHECK(shard(plan, tensor("layers.0.mlp.up.weight", {8, 8}), 0, 4) == Shape{2, 8});
  CHECK(shard(plan, tensor("layers.0.mlp.up.bias", {8}), 0, 4) == Shape{8});
  CHECK(shard(plan, tensor("layers.3.mlp.up.weight", {8, 8}), 0, 4) == Shape{8, 8});
  CHECK(shard(plan, tensor("layers.0.mlp.fc1.weight", {8, 8}), 0, 4) == Shape{8, 8});
  CHECK(shard(plan, tensor("layers.3.mlp.fc2.weight", {8, 8}), 0, 4) == Shape{2, 8});
}

TEST_CASE("keys match whole components only", "[placement]") {
  const TpPlan plan = parse(R"({"layers.*.q": "colwise"})");
  CHECK(is_replicated(plan, tensor("layers.0.q_norm.weight", {8, 8})));
  CHECK(is_replicated(plan, tensor("xlayers.0.q.weight", {8, 8})));
  CHECK(is_replicated(plan, tensor("layers.0", {8, 8})));
  CHECK_FALSE(is_replicated(plan, tensor("layers.0.q", {8, 8})));
}

TEST_CASE("a base-model prefix is ignored, on names and on keys", "[placement]") {
  const auto key = GENERATE(as<std::string>{}, "layers.*.fc", "model.layers.*.fc");
  const TpPlan plan = parse("{\"" + key + R"(": "colwise"})");
  for (const char* prefix : {"", "model.", "transformer.", "gpt_neox.", "language_model.",
                             "language_model.model.", "model.language_model."}) {
    CAPTURE(prefix);
    CHECK_FALSE(is_replicated(plan, tensor(std::string(prefix) + "layers.0.fc.weight", {8, 8})));
  }
  for (const char* prefix : {"vision_model.", "vision_tower.", "model.vision_tower.", "encoder.",
                             "model.model.", "mode."}) {
    CAPTURE(prefix);
    CHECK(is_replicated(plan, tensor(std::string(prefix) + "layers.0.fc.weight", {8, 8})));
  }
}

TEST_CASE("a rule file names its own base-model prefixes", "[placement]") {
  const auto prefix = GENERATE(as<std::string>{}, R"("net.text")", R"(["x", "net.text"])");
  const TpPlan plan =
      parse(R"({"tp_plan": {"fc": "colwise"}, "base_model_prefix": )" + prefix + "}");
  CHECK_FALSE(is_replicated(plan, tensor("net.text.fc.weight", {8, 8})));
  CHECK_FALSE(is_replicated(plan, tensor("fc.weight", {8, 8})));
  CHECK(is_replicated(plan, tensor("model.fc.weight", {8, 8})));
}

TEST_CASE("unmatched tensors are replicated or an error", "[placement]") {
  const std::string tail = R"(, "tp_plan": {"a": "colwise"}})";
  const TensorInfo other = tensor("b.weight", {8, 8});
  CHECK(is_replicated(parse(R"({"on_unmatched": "replicate")" + tail), other));
  const TpPlan strict = parse(R"({"on_unmatched": "error")" + tail);
  CHECK(contains(plan_error([&] { strict.place(other, 4); }), "tensor 'b.weight': no rule"));
  CHECK_THROWS_AS(strict.place(other, 1), PlanError);
  CHECK_NOTHROW(strict.place(tensor("a.weight", {8, 8}), 4));
}

TEST_CASE("a plan can be pasted bare, but not a config.json", "[placement]") {
  const TensorInfo up = tensor("model.layers.0.mlp.up_proj.weight", {8, 8});
  const std::string words = R"({"layers.*.mlp.up_proj": "colwise"})";
  CHECK_FALSE(is_replicated(parse(words), up));
  CHECK_FALSE(is_replicated(parse(R"({"tp_plan": )" + words + "}"), up));
  for (const std::string field : {R"("model_type": "x")", R"("architectures": ["X"])"}) {
    CHECK(contains(config_error("{" + field + R"(, "tp_plan": )" + words + "}"),
                   "this is a config.json, not a rule file"));
  }
  CHECK(contains(config_error(R"({"base_model_tp_plan": )" + words + "}"), "a config.json"));
  CHECK(is_replicated(TpPlan::replicate_all(), up));
}

TEST_CASE("a plan's attention projections keep heads whole", "[placement]") {
  const std::string plan = R"({"layers.*.self_attn.k_proj": "colwise",
                               "layers.*.self_attn.o_proj": "rowwise",
                               "layers.*.attn.v_proj": "colwise_gather_output"})";
  const TensorInfo k = tensor("model.layers.0.self_attn.k_proj.weight", {8, 16});
  const TensorInfo o = tensor("model.layers.0.self_attn.o_proj.weight", {16, 16});
  const TensorInfo v = tensor("model.layers.0.attn.v_proj.weight", {8, 16});
  const TpPlan known = parse(plan, heads);  // 8 query heads, 2 KV heads
  CHECK(shard(known, k, 1, 2) == Shape{4, 16});
  CHECK(contains(plan_error([&] { known.place(k, 4); }), "ranks that work: 1, 2"));
  CHECK(shard(known, o, 1, 8) == Shape{16, 2});
  CHECK(contains(plan_error([&] { known.place(o, 16); }), "ranks that work: 1, 2, 4, 8"));
  CHECK(shard(known, v, 1, 8) == Shape{1, 16});
  const TpPlan unknown = parse(plan);
  CHECK(contains(failure<ConfigError>([&] { unknown.place(k, 2); }).cause,
                 "config.json does not give 'kv_heads'"));
}

TEST_CASE("a dimension that does not divide is an error that says what works", "[placement]") {
  const TensorInfo odd = tensor("m.weight", {10, 8});
  const std::string message = plan_error([&] { one_word("colwise").place(odd, 4); });
  for (const char* part : {"'m.weight'", "[10, 8]", "axis 0", "10 elements", "4 ranks",
                           "numbers of ranks that work: 1, 2, 5, 10"}) {
    CHECK(contains(message, part));
  }
  const TpPlan rule = one_rule(R"("style": "colwise", "uneven": true)");
  CHECK(shard(rule, odd, 0, 4) == Shape{3, 8});
  CHECK(shard(rule, odd, 3, 4) == Shape{1, 8});
  const TpPlan file = parse(R"({"uneven": true, "tp_plan": {"m": "packed_colwise"}})");
  CHECK(kept(file, odd, 3, 4) == std::vector<Interval>{});
  CHECK(kept(file, odd, 2, 4) == std::vector<Interval>{{4, 1}, {9, 1}});
}

TEST_CASE("built-in rules can be saved and edited, or extended", "[placement]") {
  const std::string config =
      R"({"model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 2})";
  const TensorInfo odd = tensor("lm_head.weight", {10, 8});
  const TensorInfo up = tensor("model.layers.0.mlp.up_proj.weight", {8, 8});
  const TpPlan plan = TpPlan::automatic(config);
  CHECK(contains(plan_error([&] { plan.place(odd, 4); }), "does not divide among 4 ranks"));
  const std::string edited = "{\"uneven\": true," + plan.to_json().substr(1);
  CHECK(shard(parse(edited, config), odd, 3, 4) == Shape{1, 8});

  const TpPlan extended = parse(R"({"extends": "llama", "uneven": true, "rules": [
      {"match": "layers.*.mlp.up_proj", "place": "replicate"}]})",
                                config);
  CHECK(shard(extended, odd, 3, 4) == Shape{1, 8});
  CHECK(is_replicated(extended, up));
  CHECK_FALSE(is_replicated(plan, up));
  CHECK(contains(config_error(R"({"extends": "lama", "rules": []})"),
                 "\"extends\": no built-in rules 'lama'; 'safeshuffle models' lists them"));
}

TEST_CASE("units in groups stay together, or share a group evenly", "[placement]") {
  const TpPlan plan = one_rule(R"("style": "colwise", "units": 6, "groups": 2)");
  const TensorInfo info = tensor("m.weight", {12, 8});
  CHECK(kept(plan, info, 1, 2) == std::vector<Interval>{{6, 6}});
  CHECK(kept(plan, info, 4, 6) == std::vector<Interval>{{8, 2}});
  CHECK(contains(plan_error([&] { plan.place(info, 3); }), "ranks that work: 1, 2, 6"));
  CHECK(contains(plan_error([&] { plan.place(info, 4); }), "does not divide among 2 ranks"));
  const auto error = [](const std::string& fields) {
    return config_error(R"({"rules": [{"match": "m", "style": "colwise", )" + fields + "}]}");
  };
  CHECK(contains(error(R"("units": 6, "groups": 4)"), "6 units are not a multiple of 4 groups"));
  CHECK(contains(error(R"("groups": 4)"), R"(needs "units")"));
  CHECK(contains(error(R"("units": 6, "groups": 3, "parts": [1])"), "has no meaning beside"));
}

TEST_CASE("a rule may be for some layers only, with their own counts", "[placement]") {
  const TpPlan plan = parse(R"({"rules": [
      {"match": ["layers.*.k", "layers.*.v"], "style": "colwise", "units": "kv_heads"},
      {"match": ["layers.*.k", "layers.*.v"], "where": {"kinds": "full"},
       "style": "colwise", "units": ["kv_heads * factor", "kv_heads * 2"]}]})",
                            R"({"num_key_value_heads": 2, "kinds": ["local", "full", "full"],
                                "per_layer_config": {"2": {"num_key_value_heads": 3}}})");
  const auto works = [&](const std::string& name) {
    return plan_error([&] { plan.place(tensor(name, {12, 8}), 5); });
  };
  CHECK(contains(works("layers.0.v.weight"), "2 units, does not divide among 5 ranks"));
  CHECK(contains(works("layers.1.k.weight"), "4 units, does not"));
  CHECK(contains(works("layers.2.k.weight"), "6 units, does not"));
  CHECK(contains(works("layers.3.v.weight"), "2 units, does not"));
  CHECK(contains(config_error(R"({"rules": [
      {"match": "layers.*.k", "where": {"kinds": "full"}, "style": "colwise"}]})"),
                 "\"rules[0].where\": config.json has no such layer"));
}

TEST_CASE("an optional rule without its count is an error only where it applies", "[placement]") {
  const std::string rules = R"({"rules": [
      {"match": "a", "style": "colwise", "units": ["x", "y"], "optional": true},
      {"match": "b", "dim": 0, "parts": [1, {"units": "z"}], "optional": true},
      {"match": "c", "style": "colwise"}]})";
  const TpPlan plan = parse(rules, "{}");
  CHECK_FALSE(is_replicated(plan, tensor("c.weight", {8, 8})));
  const ErrorRecord record = failure<ConfigError>([&] {
    plan.place(tensor("a.weight", {8, 8}), 2);
  });
  CHECK(record.tensor == "a.weight");
  CHECK(contains(record.cause, "config.json does not give 'x', 'y'"));
  CHECK(contains(failure<ConfigError>([&] {
                   plan.place(tensor("b.weight", {8, 8}), 2);
                 }).cause,
                 "config.json does not give 'z'"));
  CHECK(shard(plan, tensor("a.weight", {8, 8}), 0, 1) == Shape{8, 8});
}

TEST_CASE("a field of a rule file where it has no effect is an error", "[placement]") {
  struct Row {
    const char* rules;
    const char* message;
  };
  const auto row = GENERATE(
      Row{R"({"uneven": true, "m": "colwise"})",
          "\"uneven\": a field of a rule file, but this is a bare plan"},
      Row{R"({"on_unmatched": "replicate", "m": "colwise"})", "\"on_unmatched\": a field"},
      Row{R"({"optional": ["m"], "m": "colwise"})", "\"optional\": a field"},
      Row{R"({"base_model_prefix": "x", "m": "colwise"})", "\"base_model_prefix\": a field"},
      Row{R"({"tp_plan": {"uneven": true, "m": "colwise"}})",
          "\"tp_plan.uneven\": a field of a rule file; it belongs beside"});
  CHECK(contains(config_error(row.rules), row.message));
}

TEST_CASE("rules as JSON make the same rules again", "[placement]") {
  struct Row {
    const char* rules;
    const char* json;
  };
  const auto row = GENERATE(
      Row{"{ \"tp_plan\": {\"m\": \"rowwise\"} }\n\n", "{ \"tp_plan\": {\"m\": \"rowwise\"} }"},
      Row{R"({"z": "gather", "m": "rowwise", "lm_head": "colwise_rep"})",
          R"({"tp_plan":{"z":"gather","m":"rowwise","lm_head":"colwise_rep"},"optional":["lm_head"]})"});
  const std::string json = parse(row.rules).to_json();
  CHECK(nlohmann::ordered_json::parse(json) == nlohmann::ordered_json::parse(row.json));
  const TpPlan again = parse(json);
  CHECK(again.to_json() == json);
  CHECK(shard(again, tensor("m.weight", {8, 8}), 0, 4) == Shape{8, 2});
  CHECK(parse(TpPlan::replicate_all().to_json()).to_json() == R"({"tp_plan": {}})");
}

TEST_CASE("units keep heads whole", "[placement]") {
  const TensorInfo q = tensor("m.weight", {48, 5});
  CHECK(shard(one_rule(R"("style": "colwise", "units": 8)"), q, 1, 4) == Shape{12, 5});
  const TpPlan six = one_rule(R"("style": "colwise", "units": 6)");
  CHECK(contains(plan_error([&] { six.place(q, 4); }), "6 units"));
  const TpPlan seven = one_rule(R"("style": "colwise", "units": 7)");
  CHECK(contains(plan_error([&] { seven.place(q, 7); }), "7 equal units"));
  CHECK(shard(seven, q, 0, 1) == q.shape);
  const TpPlan uneven = one_rule(R"("style": "colwise", "units": 6, "uneven": true)");
  CHECK(shard(uneven, q, 2, 4) == Shape{16, 5});
  CHECK(shard(uneven, q, 3, 4) == Shape{0, 5});
}

TEST_CASE("KV heads fewer than ranks are replicated if the rule says so", "[placement]") {
  const TensorInfo k = tensor("m.weight", {6, 4});
  const TpPlan plan =
      one_rule(R"("style": "colwise", "units": "num_key_value_heads", "replicate_units": true)");
  CHECK(kept(plan, k, 3, 8) == std::vector<Interval>{{0, 3}});
  CHECK(kept(plan, k, 4, 8) == std::vector<Interval>{{3, 3}});
  CHECK(kept(plan, k, 1, 2) == std::vector<Interval>{{3, 3}});
  const TpPlan cut = one_rule(R"("style": "colwise", "units": "num_key_value_heads")");
  CHECK_THROWS_AS(cut.place(k, 8), PlanError);
}

TEST_CASE("quantities come from config.json, with alternatives", "[placement]") {
  const TensorInfo w = tensor("m.weight", {24, 1});
  const auto units = [&](const std::string& value, const std::string& config) {
    return one_rule(R"("dim": 0, "units": )" + value, config).place(w, 2).split.sharing.units;
  };
  CHECK(units(R"("query_heads")", R"({"n_head": 4})") == 4);
  CHECK(units(R"("kv_heads")", R"({"n_head": 4})") == 4);
  CHECK(units(R"("group")", heads) == 4);
  CHECK(units(R"("kv_heads")", R"({"text_config": {"num_key_value_heads": 6}})") == 6);
  CHECK(units(R"(["a", "b", 12])", R"({"b": 2})") == 2);
  CHECK(units(R"(["a", "b", 12])", R"({"a": null})") == 12);
  CHECK(units(R"(["a", "elements"])", "") == 24);
}

TEST_CASE("fused parts", "[placement]") {
  const TensorInfo qkv = tensor("m.weight", {24, 2});
  const TpPlan heads_of = one_rule(R"("style": "colwise", "parts": [{"units": "query_heads"},
      {"units": "kv_heads", "replicate_units": true}, {"units": "kv_heads", "replicate_units": true}])");
  CHECK(kept(heads_of, qkv, 3, 4) == std::vector<Interval>{{12, 4}, {18, 2}, {22, 2}});
  const TpPlan sizes = one_rule(R"("style": "colwise", "parts": [8, 4])");
  CHECK(kept(sizes, qkv, 1, 4) == std::vector<Interval>{{4, 4}, {18, 2}});
  const TpPlan sized = one_rule(R"("dim": 0, "parts": [{"size": 2, "units": 8}, {"size": 1}])");
  CHECK(kept(sized, qkv, 1, 8) == std::vector<Interval>{{2, 2}, {17, 1}});
  CHECK(contains(plan_error([&] { sizes.place(tensor("m.weight", {25, 2}), 4); }), "parts"));
  CHECK(shard(sizes, tensor("m.weight", {25, 2}), 0, 1) == Shape{25, 2});
}

TEST_CASE("a rule can cut any dimension or place the whole tensor", "[placement]") {
  const TensorInfo cube = tensor("m.weight", {4, 8, 16});
  CHECK(shard(one_rule(R"("dim": -1)"), cube, 0, 4) == Shape{4, 8, 4});
  CHECK(shard(one_rule(R"("dim": 1)"), cube, 0, 4) == Shape{4, 2, 16});
  CHECK(shard(one_rule(R"("dim": 0)"), tensor("m.bias", {8}), 0, 4) == Shape{2});
  const TpPlan third = one_rule(R"("dim": 2)");
  CHECK(contains(plan_error([&] { third.place(tensor("m.b", {8}), 4); }), "no dimension 2"));
  CHECK_NOTHROW(third.place(tensor("m.b", {8}), 1));
  CHECK(is_replicated(third, tensor("m.b", {})));

  CHECK(is_replicated(one_rule(R"("place": "replicate")"), cube));
  CHECK(one_rule(R"("place": "drop")").place(cube, 4).kind == Placement::Kind::dropped);
  const TpPlan second = one_rule(R"("place": {"rank": 2})");
  CHECK(second.place(cube, 4).kind == Placement::Kind::single);
  CHECK(second.place(cube, 4).rank == 2);
  CHECK(contains(plan_error([&] { second.place(cube, 2); }), "rank 2"));
}

TEST_CASE("a rule wins over a plan's key for the same tensors", "[placement]") {
  const TpPlan plan = parse(R"({"tp_plan": {"model.m": "colwise"},
                                "rules": [{"match": "m", "style": "rowwise"}]})");
  CHECK(shard(plan, tensor("m.weight", {8, 8}), 0, 4) == Shape{8, 2});
}

TEST_CASE("defects of a rule file are named", "[placement]") {
  const auto rule = [](const std::string& fields) {
    return R"({"rules": [{"match": "m", )" + fields + "}]}";
  };
  struct Row {
    std::string text;
    const char* message;
  };
  const std::vector<Row> rows{
      {"", "the JSON text ends early"},
      {"[1]", "not a JSON object"},
      {"{}", "neither \"tp_plan\" nor \"rules\""},
      {"{\"a\": \"colwise\"} x", "not valid JSON"},
      {"{\"a\": \"colwise\", \"a\": \"rowwise\"}", "\"a\": appears twice"},
      {R"({"rules": [{"match": "a", "match": "b", "dim": 0}]})", "\"match\": appears twice"},
      {R"({"a": 1})", "\"a\": not a string"},
      {R"({"tp_plan": []})", "\"tp_plan\": not a JSON object"},
      {R"({"tp_plan": {}, "colour": 1})", "\"colour\": unknown field"},
      {R"({"tp_plan": {"": "colwise"}})", "empty"},
      {R"({"tp_plan": {}, "on_unmatched": "fail"})", "\"on_unmatched\": not"},
      {R"({"tp_plan": {}, "uneven": 1})", "\"uneven\": not true or false"},
      {R"({"tp_plan": {}, "base_model_prefix": [1]})", "\"base_model_prefix\": not a string"},
      {R"({"tp_plan": {}, "optional": [1]})", "\"optional\": not a string"},
      {R"({"tp_plan": {"a": "gather"}, "optional": ["a", "b"]})", "\"optional\": 'b' is not a key"},
      {R"({"rules": [], "optional": "b"})", "\"optional\": 'b' is not a key"},
      {rule(R"("dim": 0, "optional": 1)"), "\"rules[0].optional\": not true or false"},
      {R"({"rules": {}})", "\"rules\": not a list"},
      {R"({"rules": [1]})", "\"rules[0]\": not a JSON object"},
      {R"({"rules": [{"dim": 0}]})", "\"rules[0].match\": missing"},
      {R"({"rules": [{"match": "m", "dim": 0}, {"match": "m", "dim": 1}]})",
       "\"rules[1].match\": another entry"},
      {rule(R"("dim": 0, "axis": 1)"), "\"rules[0].axis\": unknown field"},
      {rule(R"("units": 2)"), "exactly one of"},
      {rule(R"("dim": 0, "style": "colwise")"), "exactly one of"},
      {rule(R"("dim": 1.5)"), "\"rules[0].dim\": not an integer"},
      {rule(R"("dim": 9999999999)"), "\"rules[0].dim\": the dimension is out of range"},
      {rule(R"("dim": 18446744073709551615)"), "\"rules[0].dim\": the dimension is out of range"},
      {rule(R"("dim": -65)"), "\"rules[0].dim\": the dimension is out of range"},
      {rule(R"("style": "nope")"), "\"rules[0].style\": unknown style 'nope'"},
      {rule(R"("style": "replicate", "units": 2)"), "\"rules[0].units\": unknown field"},
      {rule(R"("dim": 0, "units": 0)"), "\"rules[0].units\": not a positive integer"},
      {rule(R"("dim": 0, "units": -1)"), "\"rules[0].units\": not a positive integer"},
      {rule(R"("dim": 0, "units": {})"), "\"rules[0].units\": not a positive integer"},
      {rule(R"("dim": 0, "units": [])"), "\"rules[0].units\": config.json does not give"},
      {rule(R"("dim": 0, "units": ["a", "b"])"), "does not give 'a', 'b'"},
      {rule(R"("dim": 0, "replicate_units": true)"), "\"rules[0].replicate_units\": needs"},
      {rule(R"("dim": 0, "replicate_units": true, "parts": [1, 1])"), "replicate_units\": needs"},
      {rule(R"("dim": 0, "parts": [])"), "\"rules[0].parts\": not a list of parts"},
      {rule(R"("dim": 0, "parts": [0])"), "\"rules[0].parts[0]\": not a positive"},
      {rule(R"("dim": 0, "parts": [{"part": 1}])"), "\"rules[0].parts[0].part\": unknown"},
      {rule(R"("dim": 0, "parts": [18446744073709551615, 1])"), "too large"},
      {rule(R"("place": "here")"), "\"rules[0].place\": not"},
      {rule(R"("place": "drop", "dim": 0)"), "\"rules[0].dim\": unknown field"},
      {rule(R"("place": {"rank": -1})"), "\"rules[0].place.rank\": not a rank"},
      {rule(R"("place": {"node": 1})"), "\"rules[0].place.node\": unknown field"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text);
    CHECK(contains(config_error(row.text), row.message));
  }
}

TEST_CASE("defects of a rule file are shown by key, or by line and column", "[placement]") {
  struct Row {
    std::string text;
    const char* message;
  };
  const std::vector<Row> rows{
      {"{\n  \"tp_plan\": {},\n}", "rules.json: line 3, column 1: not valid JSON: unexpected '}'"},
      {"{\n  \"a\": \"colwise\"", "line 2, column 17: the JSON text ends early"},
      {"{\n  \"a\": \"colwise\",\n  \"a\": \"rowwise\"\n}",
       "line 3, column 3: \"a\": appears twice"},
      {"{\n\t\"é\": \"colwise\", \"é\": 1}", "line 2, column 18: \"é\": appears twice"},
      {R"({"tp_plan": {"tp_plan": "colwise", "b": "nope"}})", "rules.json: \"tp_plan.b\": unknown"},
      {R"({"rules": [{"match": "m", "dim": 0},
 {"match": "n", "dim": 0, "parts": [2, {"units": 0}]}]})",
       "rules.json: \"rules[1].parts[1].units\": not a positive"},
      {"{\"rules\": [{\"match\": \"m\", \"dim\": 0},\n  {\"dim\": 0}]}",
       "rules.json: \"rules[1].match\": missing"},
      {"[\n" + std::string(40, '['), "line 2, column 32: nested deeper"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text);
    CHECK(contains(config_error(row.text), row.message));
  }
}

TEST_CASE("defects of config.json are named", "[placement]") {
  const std::string rule = R"({"rules": [{"match": "m", "dim": 0, "units": "group"}]})";
  for (const char* bad : {"-1", "0", "1.5", "\"8\"", "[8]"}) {
    CAPTURE(bad);
    CHECK(contains(config_error(rule, std::string(R"({"num_attention_heads": )") + bad + "}"),
                   "\"num_attention_heads\": not a positive integer"));
  }
  CHECK(contains(config_error(rule, "{\n \"a\": 1,}"), "config.json: line 2, column 9: not valid"));
  CHECK(contains(config_error(rule, "[]"), "config.json: not a JSON object"));
  CHECK(contains(config_error(rule, R"({"num_attention_heads": 7, "num_key_value_heads": 2})"),
                 "not a multiple"));
}

TEST_CASE("hostile nesting and hostile keys are errors, not crashes", "[placement]") {
  const std::string deep(1'000'000, '[');
  CHECK(contains(config_error(deep), "nested deeper"));
  CHECK(contains(config_error(R"({"tp_plan": {"a": )" + deep), "nested deeper"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  CHECK(contains(config_error(objects), "nested deeper"));
  std::string key = "a";
  for (int i = 0; i < 100'000; ++i) key += ".a";
  CHECK(contains(config_error("{\"" + key + "\": \"colwise\"}"), "components"));
  CHECK(is_replicated(one_word("colwise"), tensor(key, {4, 4})));
  CHECK(contains(config_error("{\"a\xff\": \"colwise\"}"), "not valid JSON"));
  CHECK(contains(config_error(std::string("{\"a\": \"colwise\"}\0{", 17)), "not valid JSON"));
}
