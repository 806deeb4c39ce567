// placement: whole experts dealt to the ranks.
#include <string>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/placement.hpp"

#include "support/catch.hpp"
#include "support/failure.hpp"
#include "support/placement.hpp"

using namespace safeshuffle;
using testing::failure;
using testing::kept;
using testing::shard;
using testing::tensor;

namespace {

constexpr const char* plan_keys = R"("tp_plan": {"layers.*.mlp.experts.*.up": "colwise",
    "layers.*.mlp.experts.*.down": "rowwise", "layers.*.mlp.shared_experts.up": "colwise"})";

TpPlan parse_experts(const std::string& experts, const std::string& config = "",
                     const std::string& more = "") {
  return TpPlan::from_json("{" + std::string(plan_keys) + more + R"(, "experts": )" + experts + "}",
                           config, "rules.json");
}

TpPlan dealt(std::uint64_t count, const std::string& more = "") {
  return parse_experts(R"({"match": "layers.*.mlp.experts", "count": )" + std::to_string(count) +
                       more + "}")
      .deal_experts();
}

TpPlan experts_word(const std::string& word, const std::string& config = "") {
  return TpPlan::from_json(R"({"layers.*.mlp.experts": ")" + word + "\"}", config, "rules.json");
}

TensorInfo up(std::uint64_t expert) {
  return tensor("model.layers.3.mlp.experts." + std::to_string(expert) + ".up.weight", {8, 4});
}

/// The ranks that hold the experts' tensors, each of which is on one rank.
std::vector<std::uint32_t> ranks_of(const TpPlan& plan, std::uint64_t experts,
                                    std::uint32_t world) {
  std::vector<std::uint32_t> ranks;
  for (std::uint64_t expert = 0; expert < experts; ++expert) {
    const Placement placement = plan.place(up(expert), world);
    CHECK(placement.kind == Placement::Kind::single);
    ranks.push_back(placement.rank);
  }
  return ranks;
}

Placement::Kind kind(const TpPlan& plan, const std::string& name, std::uint32_t world = 2) {
  return plan.place(tensor(name, {8, 4}), world).kind;
}

using Ranks = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("experts are cut unless they are dealt", "[placement]") {
  const TpPlan plan = parse_experts(R"({"match": "layers.*.mlp.experts", "count": 4})");
  CHECK(shard(plan, up(3), 1, 2) == Shape{4, 4});
  CHECK(plan.deal_experts().place(up(3), 2).kind == Placement::Kind::single);
  CHECK(plan.place(up(3), 2).kind == Placement::Kind::sharded);
}

TEST_CASE("numbered experts go whole to the ranks, in order", "[placement]") {
  CHECK(ranks_of(dealt(4), 4, 2) == Ranks{0, 0, 1, 1});
  CHECK(ranks_of(dealt(4), 4, 4) == Ranks{0, 1, 2, 3});
  CHECK(ranks_of(dealt(6), 6, 3) == Ranks{0, 0, 1, 1, 2, 2});
  for (const std::uint64_t expert : {0U, 3U}) {
    CHECK(holds(dealt(4).place(up(expert), 1), 0));
  }
  const TpPlan uneven = dealt(5, R"(, "uneven": true)");
  CHECK(ranks_of(uneven, 5, 2) == Ranks{0, 0, 0, 1, 1});
  CHECK(ranks_of(uneven, 5, 4) == Ranks{0, 0, 1, 1, 2});
  CHECK(ranks_of(uneven, 5, 8) == Ranks{0, 1, 2, 3, 4});
}

TEST_CASE("stacked experts are split by whole experts", "[placement]") {
  const TensorInfo stack = tensor("layers.0.mlp.experts.gate_up_proj", {6, 10, 4});
  const TensorInfo bias = tensor("layers.0.mlp.experts.gate_up_proj_bias", {6, 10});
  const TpPlan unknown = parse_experts(R"({"match": "layers.*.mlp.experts"})").deal_experts();
  for (const TpPlan& plan : {dealt(6), unknown}) {
    CHECK(shard(plan, stack, 2, 3) == Shape{2, 10, 4});
    CHECK(kept(plan, stack, 2, 3) == std::vector<Interval>{{4, 2}});
    CHECK(shard(plan, bias, 2, 3) == Shape{2, 10});
    CHECK(shard(plan, stack, 0, 1) == stack.shape);
  }
  // As many rows as experts times something: rows of one expert stay together.
  const TensorInfo rows = tensor("layers.0.mlp.experts.mlp.w1", {12, 4});
  CHECK(kept(dealt(4), rows, 1, 4) == std::vector<Interval>{{3, 3}});
  CHECK(kept(dealt(4, R"(, "uneven": true)"), rows, 1, 3) == std::vector<Interval>{{6, 6}});
  CHECK(shard(dealt(4, R"(, "uneven": true)"), rows, 2, 3) == Shape{0, 4});
  CHECK(kind(dealt(4), "layers.0.mlp.experts.scale") == Placement::Kind::sharded);
  CHECK(dealt(4).place(tensor("layers.0.mlp.experts.scale", {}), 2).kind ==
        Placement::Kind::replicated);
  CHECK(shard(dealt(4), tensor("layers.0.mlp.experts.w", {0, 4}), 1, 3) == Shape{0, 4});
}

TEST_CASE("routers, shared experts and other tensors keep their rules", "[placement]") {
  CHECK(kind(dealt(4), "layers.0.mlp.gate.weight") == Placement::Kind::replicated);
  CHECK(kind(dealt(4), "layers.0.mlp.shared_experts.up.weight") == Placement::Kind::sharded);
  CHECK(kind(dealt(4), "layers.0.mlp.up.weight") == Placement::Kind::replicated);
}

TEST_CASE("rules that place experts stay in force", "[placement]") {
  const TpPlan plan = parse_experts(R"({"match": "layers.*.mlp.experts", "count": 4})", "",
                                    R"(, "rules": [
      {"match": "layers.*.mlp.experts.*.up.bias", "place": "drop"},
      {"match": "layers.*.mlp.experts.3.down", "place": {"rank": 0}},
      {"match": "layers.*.mlp.experts.*.scale", "place": "replicate"}])")
                          .deal_experts();
  CHECK(kind(plan, "layers.0.mlp.experts.2.up.bias") == Placement::Kind::dropped);
  CHECK(plan.place(tensor("layers.0.mlp.experts.3.down.weight", {8, 4}), 2).rank == 0);
  CHECK(kind(plan, "layers.0.mlp.experts.3.scale") == Placement::Kind::replicated);
}

TEST_CASE("experts that do not divide among the ranks are an error", "[placement]") {
  const auto message = [](const TpPlan& plan, const TensorInfo& info, std::uint32_t world) {
    const ErrorRecord record = failure<PlanError>([&] { plan.place(info, world); });
    CHECK(record.tensor == info.name);
    return record.cause;
  };
  CHECK(message(dealt(4), up(0), 3)
            .find("4 experts do not divide among 3 ranks; numbers of ranks that work: 1, 2, 4") !=
        std::string::npos);
  CHECK(message(dealt(4), up(0), 8).find("4 experts cannot be dealt to 8 ranks") !=
        std::string::npos);
  const TensorInfo stack = tensor("layers.0.mlp.experts.w", {4, 8, 8});
  CHECK(message(dealt(4), stack, 3).find("4 experts do not divide among 3 ranks") !=
        std::string::npos);
  CHECK(message(dealt(4), stack, 8).find("4 experts cannot be dealt to 8 ranks") !=
        std::string::npos);
  CHECK(
      message(dealt(3), stack, 3).find("axis 0 (4 elements) does not consist of 3 equal experts") !=
      std::string::npos);
  CHECK(message(dealt(4), up(4), 2).find("it belongs to expert 4, counted from 0, of 4 experts") !=
        std::string::npos);
  CHECK(message(dealt(4), tensor("layers.0.mlp.experts.99999999999999999999.up", {8, 4}), 2)
            .find("it belongs to expert 18446744073709551615") != std::string::npos);
}

TEST_CASE("the number of experts is a field of config.json, or in the rules", "[placement]") {
  const auto config =
      GENERATE(as<std::string>{}, R"({"num_local_experts": 4})", R"({"num_experts": 4})",
               R"({"n_routed_experts": 4})", R"({"moe_num_experts": 4})",
               R"({"text_config": {"num_experts": 4}})");
  const std::string section = R"({"match": "layers.*.mlp.experts")";
  CHECK(parse_experts(section + "}", config).deal_experts().place(up(3), 4).rank == 3);
  CHECK(experts_word("grouped_gemm", config).place(up(3), 4).rank == 3);
  CHECK(parse_experts(section + R"(, "count": ["n", "e"]})", R"({"e": 4})")
            .deal_experts()
            .place(up(3), 4)
            .rank == 3);
  const TpPlan unknown = parse_experts(section + "}").deal_experts();
  const ErrorRecord record = failure<ConfigError>([&] { unknown.place(up(3), 4); });
  CHECK(record.tensor == up(3).name);
  CHECK(record.cause.find("config.json does not give the number of experts") == 0);
}

TEST_CASE("dealing experts requires rules that name them", "[placement]") {
  struct Row {
    TpPlan plan;
    const char* advice;
  };
  const std::vector<Row> rows{
      {TpPlan::automatic(R"({"model_type": "gpt_neox", "num_attention_heads": 4})"),
       "built-in rules 'gpt_neox': no section \"experts\""},
      {TpPlan::replicate_all(), "pass a rule file with, for example, \"experts\": {\"match\""},
      {experts_word("moe_tp_experts"), "'safeshuffle rules MODEL' prints the rules that apply"}};
  for (const Row& row : rows) {
    const std::string message = describe(failure<ConfigError>([&] { row.plan.deal_experts(); }));
    CAPTURE(message);
    CHECK(message.find("a dense model has no experts") != std::string::npos);
    CHECK(message.find(row.advice) != std::string::npos);
  }
  CHECK_NOTHROW(experts_word("grouped_gemm").deal_experts());
}

TEST_CASE("a key of experts must match if experts are dealt", "[placement]") {
  std::vector<FileInfo> files(1);
  const Catalog catalog(files, {up(0), up(1), tensor("layers.0.mlp.experts.1.down.weight", {8, 4}),
                                tensor("layers.0.mlp.shared_experts.up.weight", {8, 4})});
  const auto dealt = [&](const std::string& keys) {
    const TpPlan plan = parse_experts(R"({"match": [)" + keys + R"(], "count": 2})");
    CHECK_NOTHROW(plan.place_all(catalog, 2));
    return plan.deal_experts();
  };
  CHECK_NOTHROW(dealt(R"("layers.*.mlp.experts", "layers.*.moe.experts")").place_all(catalog, 2));
  const TpPlan none = dealt(R"("layers.*.moe.experts")");
  const ErrorRecord record = failure<ConfigError>([&] { none.place_all(catalog, 2); });
  CHECK(record.cause.find("\"experts.match\": no tensor of the checkpoint matches "
                          "\"layers.*.moe.experts\"; it has names such as "
                          "\"model.layers.3.mlp.experts.0.up.weight\"; correct or "
                          "remove it") != std::string::npos);
}

TEST_CASE("Hugging Face's words for expert parallelism", "[placement]") {
  const TpPlan plan = TpPlan::from_json(R"({
      "layers.*.mlp.router": "ep_router",
      "layers.*.mlp.experts.gate_up_proj": "grouped_gemm",
      "layers.*.mlp.experts.gate_up_proj_bias": "grouped_gemm",
      "layers.*.mlp.experts": "ep_dispatch_experts"})",
                                        "", "rules.json");
  CHECK(kind(plan, "layers.0.mlp.router.weight") == Placement::Kind::replicated);
  CHECK(shard(plan, tensor("layers.0.mlp.experts.gate_up_proj", {4, 2, 6}), 1, 4) ==
        Shape{1, 2, 6});
  CHECK(shard(plan, tensor("layers.0.mlp.experts.gate_up_proj_bias", {4, 2}), 1, 4) == Shape{1, 2});
  CHECK(kind(plan, "layers.0.mlp.experts.scale") == Placement::Kind::replicated);
  CHECK_THROWS_AS(plan.place(tensor("layers.0.mlp.experts.gate_up_proj", {4, 2, 6}), 3), PlanError);
}

TEST_CASE("a rule may deal experts, too", "[placement]") {
  const TpPlan plan = TpPlan::from_json(
      R"({"rules": [{"match": "m.experts", "style": "grouped_gemm", "uneven": true}]})", "",
      "rules.json");
  CHECK(shard(plan, tensor("m.experts.w", {5, 2}), 0, 2) == Shape{3, 2});
  CHECK(shard(plan, tensor("m.experts.w", {5, 2}), 1, 2) == Shape{2, 2});
}

TEST_CASE("a key may not name single experts", "[placement]") {
  const auto rules = GENERATE(
      as<std::string>{}, R"({"layers.*.mlp.experts.*.up": "grouped_gemm"})",
      R"({"layers.*.mlp.experts.*": "grouped_gemm"})", R"({"experts.3.up": "grouped_gemm"})",
      R"({"tp_plan": {}, "experts": {"match": "layers.*.moe.*"}})",
      R"({"tp_plan": {}, "experts": {"match": ["a", "layers.*.mlp.experts.*.up"]}})");
  CAPTURE(rules);
  const ErrorRecord record =
      failure<ConfigError>([&] { TpPlan::from_json(rules, "", "rules.json"); });
  CHECK(record.cause.find("stands for single experts; name the module") != std::string::npos);
}

TEST_CASE("defects of the section experts are named", "[placement]") {
  struct Row {
    std::string section;
    const char* message;
  };
  const std::vector<Row> rows{
      {"[]", "\"experts\": not a JSON object"},
      {"{}", "\"experts.match\": missing"},
      {R"({"match": []})", "\"experts.match\": missing"},
      {R"({"match": 1})", "\"experts.match\": not a string or a list"},
      {R"({"match": ["a", "model.a"]})", "\"experts.match\": another entry matches the same names"},
      {R"({"match": "a", "experts": 2})", "\"experts.experts\": unknown field"},
      {R"({"match": "a", "uneven": 1})", "\"experts.uneven\": not true or false"},
      {R"({"match": "a", "count": -1})", "\"experts.count\": not a positive integer"},
      {R"({"match": "a", "count": "n"})", "config.json does not give 'n'"},
      {R"({"match": "a", "count": "elements"})", "\"elements\" has no meaning here"},
  };
  for (const Row& row : rows) {
    const std::string message = describe(failure<ConfigError>([&] { parse_experts(row.section); }));
    CAPTURE(row.section, message);
    CHECK(message.find(row.message) != std::string::npos);
  }
  for (const char* rules : {R"({"experts": {"match": "a"}, "a": "colwise"})",
                            R"({"pipeline": {"layers": "a"}, "a": "colwise"})"}) {
    const ErrorRecord record =
        failure<ConfigError>([&] { TpPlan::from_json(rules, "", "rules.json"); });
    CHECK(record.cause.find("a field of a rule file, but this is a bare plan") !=
          std::string::npos);
  }
}

TEST_CASE("the built-in rules of mixtures deal their experts", "[placement]") {
  struct Row {
    const char* config;
    const char* expert;
    const char* router;
  };
  const auto row = GENERATE(
      Row{R"("mixtral", "num_local_experts": 8)", "block_sparse_moe.experts.5.w2.weight",
          "block_sparse_moe.gate.weight"},
      Row{R"("qwen2_moe", "num_experts": 8)", "mlp.experts.5.down_proj.weight", "mlp.gate.weight"},
      Row{R"("qwen3_moe", "num_experts": 8)", "mlp.experts.5.up_proj.weight", "mlp.gate.weight"});
  const std::string config = R"({"num_attention_heads": 4, "model_type": )";
  const TpPlan plan = TpPlan::automatic(config + row.config + "}").deal_experts();
  const std::string layer = "model.layers.1.";
  CHECK(plan.place(tensor(layer + row.expert, {8, 8}), 4).rank == 2);
  CHECK(kind(plan, layer + row.expert) == Placement::Kind::single);
  CHECK(kind(plan, layer + row.router) == Placement::Kind::replicated);
  CHECK(kind(plan, layer + "self_attn.q_proj.weight") == Placement::Kind::sharded);
}
