// placement: the built-in rules, on tiny models and on the names of real ones.
#include <map>

#include "safeshuffle/error.hpp"
#include "safeshuffle/placement.hpp"
#include "safeshuffle/plan.hpp"
#include "safeshuffle/target.hpp"

#include "support/catalogs.hpp"
#include "support/catch.hpp"
#include "support/contains.hpp"
#include "support/failure.hpp"
#include "support/placement.hpp"
#include "synth/layout.hpp"

using namespace safeshuffle;
using testing::contains;
using testing::failure;
using testing::kept;
using testing::shard;
using testing::tensor;

namespace {

/// A tensor of a tiny model and what rank 1 holds of it in groups of 2 and 4.
struct Row {
  const char* name;
  Shape whole;
  Shape of_two;
  Shape of_four;
};

void check_model(const std::string& config, const std::vector<Row>& rows,
                 const std::string& prefix = "") {
  const TpPlan plan = TpPlan::automatic(config);
  for (const Row& row : rows) {
    const TensorInfo info = tensor(prefix + row.name, row.whole);
    CAPTURE(config, info.name);
    CHECK(shard(plan, info, 0, 1) == row.whole);
    CHECK(shard(plan, info, 1, 2) == row.of_two);
    CHECK(shard(plan, info, 1, 4) == row.of_four);
  }
}

// hidden 16, 4 heads of 4, 2 KV heads, intermediate 24, vocabulary 40.
const std::vector<Row> llama_attention{
    {"embed_tokens.weight", {40, 16}, {20, 16}, {10, 16}},
    {"layers.0.self_attn.q_proj.weight", {16, 16}, {8, 16}, {4, 16}},
    {"layers.0.self_attn.q_proj.bias", {16}, {8}, {4}},
    {"layers.0.self_attn.k_proj.weight", {8, 16}, {4, 16}, {4, 16}},
    {"layers.0.self_attn.k_proj.bias", {8}, {4}, {4}},
    {"layers.0.self_attn.v_proj.weight", {8, 16}, {4, 16}, {4, 16}},
    {"layers.0.self_attn.v_proj.bias", {8}, {4}, {4}},
    {"layers.0.self_attn.o_proj.weight", {16, 16}, {16, 8}, {16, 4}},
    {"layers.0.self_attn.o_proj.bias", {16}, {16}, {16}},
    {"layers.0.self_attn.q_norm.weight", {4}, {4}, {4}},
    {"layers.0.self_attn.k_norm.weight", {4}, {4}, {4}},
    {"layers.0.self_attn.rotary_emb.inv_freq", {2}, {2}, {2}},
    {"layers.11.input_layernorm.weight", {16}, {16}, {16}},
    {"layers.11.post_attention_layernorm.weight", {16}, {16}, {16}},
    {"norm.weight", {16}, {16}, {16}}};

const std::vector<Row> llama_mlp{{"layers.0.mlp.gate_proj.weight", {24, 16}, {12, 16}, {6, 16}},
                                 {"layers.0.mlp.gate_proj.bias", {24}, {12}, {6}},
                                 {"layers.0.mlp.up_proj.weight", {24, 16}, {12, 16}, {6, 16}},
                                 {"layers.0.mlp.up_proj.bias", {24}, {12}, {6}},
                                 {"layers.0.mlp.down_proj.weight", {16, 24}, {16, 12}, {16, 6}},
                                 {"layers.0.mlp.down_proj.bias", {16}, {16}, {16}},
                                 {"layers.0.pre_feedforward_layernorm.weight", {16}, {16}, {16}},
                                 {"layers.0.post_feedforward_layernorm.weight", {16}, {16}, {16}}};

const std::vector<Row> lm_head{{"lm_head.weight", {40, 16}, {20, 16}, {10, 16}},
                               {"lm_head.bias", {40}, {20}, {10}}};

const std::vector<Row> mixtral_mlp{
    {"layers.0.block_sparse_moe.gate.weight", {8, 16}, {8, 16}, {8, 16}},
    {"layers.0.block_sparse_moe.experts.7.w1.weight", {24, 16}, {12, 16}, {6, 16}},
    {"layers.0.block_sparse_moe.experts.7.w2.weight", {16, 24}, {16, 12}, {16, 6}},
    {"layers.0.block_sparse_moe.experts.7.w3.weight", {24, 16}, {12, 16}, {6, 16}}};

const std::vector<Row> qwen_moe{
    {"layers.0.mlp.gate.weight", {8, 16}, {8, 16}, {8, 16}},
    {"layers.0.mlp.experts.7.gate_proj.weight", {24, 16}, {12, 16}, {6, 16}},
    {"layers.0.mlp.experts.7.up_proj.weight", {24, 16}, {12, 16}, {6, 16}},
    {"layers.0.mlp.experts.7.down_proj.weight", {16, 24}, {16, 12}, {16, 6}}};

const std::vector<Row> qwen2_shared_expert{
    {"layers.0.mlp.shared_expert.gate_proj.weight", {24, 16}, {12, 16}, {6, 16}},
    {"layers.0.mlp.shared_expert.up_proj.weight", {24, 16}, {12, 16}, {6, 16}},
    {"layers.0.mlp.shared_expert.down_proj.weight", {16, 24}, {16, 12}, {16, 6}},
    {"layers.0.mlp.shared_expert_gate.weight", {1, 16}, {1, 16}, {1, 16}}};

const std::vector<Row> phi3_layers{
    {"layers.0.self_attn.qkv_proj.weight", {32, 16}, {16, 16}, {12, 16}},
    {"layers.0.self_attn.o_proj.weight", {16, 16}, {16, 8}, {16, 4}},
    {"layers.0.mlp.gate_up_proj.weight", {48, 16}, {24, 16}, {12, 16}},
    {"layers.0.mlp.down_proj.weight", {16, 24}, {16, 12}, {16, 6}},
    {"layers.0.input_layernorm.weight", {16}, {16}, {16}}};

// BLOOM, GPT-NeoX and Falcon: hidden 16, 4 heads of 4, intermediate 64, vocabulary 40.
const std::vector<Row> bloom{
    {"word_embeddings.weight", {40, 16}, {20, 16}, {10, 16}},
    {"word_embeddings_layernorm.weight", {16}, {16}, {16}},
    {"word_embeddings_layernorm.bias", {16}, {16}, {16}},
    {"h.0.input_layernorm.weight", {16}, {16}, {16}},
    {"h.0.self_attention.query_key_value.weight", {48, 16}, {24, 16}, {12, 16}},
    {"h.0.self_attention.query_key_value.bias", {48}, {24}, {12}},
    {"h.0.self_attention.dense.weight", {16, 16}, {16, 8}, {16, 4}},
    {"h.0.self_attention.dense.bias", {16}, {16}, {16}},
    {"h.0.post_attention_layernorm.bias", {16}, {16}, {16}},
    {"h.0.mlp.dense_h_to_4h.weight", {64, 16}, {32, 16}, {16, 16}},
    {"h.0.mlp.dense_h_to_4h.bias", {64}, {32}, {16}},
    {"h.0.mlp.dense_4h_to_h.weight", {16, 64}, {16, 32}, {16, 16}},
    {"h.0.mlp.dense_4h_to_h.bias", {16}, {16}, {16}},
    {"ln_f.weight", {16}, {16}, {16}}};

const std::vector<Row> gpt_neox{
    {"embed_in.weight", {40, 16}, {20, 16}, {10, 16}},
    {"layers.0.attention.query_key_value.weight", {48, 16}, {24, 16}, {12, 16}},
    {"layers.0.attention.query_key_value.bias", {48}, {24}, {12}},
    {"layers.0.attention.dense.weight", {16, 16}, {16, 8}, {16, 4}},
    {"layers.0.attention.dense.bias", {16}, {16}, {16}},
    {"layers.0.attention.bias", {1, 1, 64, 64}, {1, 1, 64, 64}, {1, 1, 64, 64}},
    {"layers.0.attention.masked_bias", {}, {}, {}},
    {"layers.0.mlp.dense_h_to_4h.weight", {64, 16}, {32, 16}, {16, 16}},
    {"layers.0.mlp.dense_h_to_4h.bias", {64}, {32}, {16}},
    {"layers.0.mlp.dense_4h_to_h.weight", {16, 64}, {16, 32}, {16, 16}},
    {"layers.0.mlp.dense_4h_to_h.bias", {16}, {16}, {16}},
    {"final_layer_norm.weight", {16}, {16}, {16}}};

std::vector<Row> falcon(Row query_key_value) {
  return {{"word_embeddings.weight", {40, 16}, {20, 16}, {10, 16}},
          query_key_value,
          {"h.0.self_attention.dense.weight", {16, 16}, {16, 8}, {16, 4}},
          {"h.0.self_attention.dense.bias", {16}, {16}, {16}},
          {"h.0.mlp.dense_h_to_4h.weight", {64, 16}, {32, 16}, {16, 16}},
          {"h.0.mlp.dense_4h_to_h.weight", {16, 64}, {16, 32}, {16, 16}},
          {"h.0.ln_attn.weight", {16}, {16}, {16}},
          {"h.0.ln_mlp.bias", {16}, {16}, {16}},
          {"ln_f.weight", {16}, {16}, {16}}};
}

const std::string falcon_weight = "h.0.self_attention.query_key_value.weight";

/// "model.layers.17.norm" → "model.layers.*.norm", as far as digits are whole components.
std::string family(const std::string& name) {
  std::string result;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool digit = name[i] >= '0' && name[i] <= '9';
    const bool indexed = digit && (result.empty() || result.back() == '.' || result.back() == '*');
    if (!indexed) result += name[i];
    if (indexed && result.back() != '*') result += '*';
  }
  return result;
}

/// Shape and cut dimension (none: replicated) of one family of tensors.
struct Family {
  Shape shape;
  std::optional<std::size_t> cut;
};
using Families = std::map<std::string, Family>;

constexpr std::nullopt_t unsplit = std::nullopt;

const Families llama_70b{{"model.embed_tokens.weight", {{32000, 8192}, 0}},
                         {"model.layers.*.input_layernorm.weight", {{8192}, unsplit}},
                         {"model.layers.*.mlp.down_proj.weight", {{8192, 28672}, 1}},
                         {"model.layers.*.mlp.gate_proj.weight", {{28672, 8192}, 0}},
                         {"model.layers.*.mlp.up_proj.weight", {{28672, 8192}, 0}},
                         {"model.layers.*.post_attention_layernorm.weight", {{8192}, unsplit}},
                         {"model.layers.*.self_attn.k_proj.weight", {{1024, 8192}, 0}},
                         {"model.layers.*.self_attn.o_proj.weight", {{8192, 8192}, 1}},
                         {"model.layers.*.self_attn.q_proj.weight", {{8192, 8192}, 0}},
                         {"model.layers.*.self_attn.v_proj.weight", {{1024, 8192}, 0}},
                         {"model.norm.weight", {{8192}, unsplit}},
                         {"lm_head.weight", {{32000, 8192}, 0}}};

const Families bloom_176b{{"h.*.input_layernorm.bias", {{14336}, unsplit}},
                          {"h.*.input_layernorm.weight", {{14336}, unsplit}},
                          {"h.*.mlp.dense_4h_to_h.bias", {{14336}, unsplit}},
                          {"h.*.mlp.dense_4h_to_h.weight", {{14336, 57344}, 1}},
                          {"h.*.mlp.dense_h_to_4h.bias", {{57344}, 0}},
                          {"h.*.mlp.dense_h_to_4h.weight", {{57344, 14336}, 0}},
                          {"h.*.post_attention_layernorm.bias", {{14336}, unsplit}},
                          {"h.*.post_attention_layernorm.weight", {{14336}, unsplit}},
                          {"h.*.self_attention.dense.bias", {{14336}, unsplit}},
                          {"h.*.self_attention.dense.weight", {{14336, 14336}, 1}},
                          {"h.*.self_attention.query_key_value.bias", {{43008}, 0}},
                          {"h.*.self_attention.query_key_value.weight", {{43008, 14336}, 0}},
                          {"ln_f.bias", {{14336}, unsplit}},
                          {"ln_f.weight", {{14336}, unsplit}},
                          {"word_embeddings.weight", {{250880, 14336}, 0}},
                          {"word_embeddings_layernorm.bias", {{14336}, unsplit}},
                          {"word_embeddings_layernorm.weight", {{14336}, unsplit}}};

const Families falcon_180b{
    {"lm_head.weight", {{65024, 14848}, 0}},
    {"transformer.h.*.ln_attn.bias", {{14848}, unsplit}},
    {"transformer.h.*.ln_attn.weight", {{14848}, unsplit}},
    {"transformer.h.*.ln_mlp.bias", {{14848}, unsplit}},
    {"transformer.h.*.ln_mlp.weight", {{14848}, unsplit}},
    {"transformer.h.*.mlp.dense_4h_to_h.weight", {{14848, 59392}, 1}},
    {"transformer.h.*.mlp.dense_h_to_4h.weight", {{59392, 14848}, 0}},
    {"transformer.h.*.self_attention.dense.weight", {{14848, 14848}, 1}},
    {"transformer.h.*.self_attention.query_key_value.weight", {{15872, 14848}, 0}},
    {"transformer.ln_f.bias", {{14848}, unsplit}},
    {"transformer.ln_f.weight", {{14848}, unsplit}},
    {"transformer.word_embeddings.weight", {{65024, 14848}, 0}}};

const std::map<std::string, const Families*> model_families{
    {"llama-2-70b", &llama_70b}, {"bloom-176b", &bloom_176b}, {"falcon-180b", &falcon_180b}};

void check_family(const TpPlan& plan, const std::string& name, const Family& expected,
                  std::uint32_t world) {
  const TensorInfo info = tensor(name, expected.shape);
  Shape shape = expected.shape;
  if (expected.cut) shape[*expected.cut] /= world;
  CAPTURE(name, world);
  CHECK(shard(plan, info, world - 1, world) == shape);
  const auto kind = expected.cut ? Placement::Kind::sharded : Placement::Kind::replicated;
  CHECK(plan.place(info, world).kind == kind);
}

}  // namespace

TEST_CASE("llama and its relatives", "[placement]") {
  const auto type = GENERATE(as<std::string>{}, "llama", "mistral", "qwen2", "qwen3", "gemma",
                             "gemma2", "gemma3_text");
  const auto prefix = GENERATE(as<std::string>{}, "", "model.");
  const std::string config =
      R"({"num_attention_heads": 4, "num_key_value_heads": 2, "model_type": ")";
  check_model(config + type + "\"}", llama_attention, prefix);
  check_model(config + type + "\"}", llama_mlp, prefix);
  check_model(config + type + "\"}", lm_head);
}

TEST_CASE("mixtral", "[placement]") {
  const std::string config =
      R"({"num_attention_heads": 4, "num_key_value_heads": 2, "model_type": "mixtral"})";
  check_model(config, llama_attention, "model.");
  check_model(config, mixtral_mlp, "model.");
  check_model(config, lm_head);
}

TEST_CASE("qwen's mixtures of experts", "[placement]") {
  const auto type = GENERATE(as<std::string>{}, "qwen2_moe", "qwen3_moe");
  const std::string config =
      R"({"num_attention_heads": 4, "num_key_value_heads": 2, "model_type": ")" + type + "\"}";
  check_model(config, llama_attention, "model.");
  check_model(config, llama_mlp, "model.");  // layers without experts
  check_model(config, qwen_moe, "model.");
  check_model(config, lm_head);
  if (type == "qwen2_moe") check_model(config, qwen2_shared_expert, "model.");
}

TEST_CASE("phi3", "[placement]") {
  const std::string config =
      R"({"num_attention_heads": 4, "num_key_value_heads": 2, "model_type": "phi3"})";
  check_model(config, phi3_layers, "model.");
  check_model(config, lm_head);
  const TpPlan plan = TpPlan::automatic(config);
  const TensorInfo qkv = tensor("model.layers.0.self_attn.qkv_proj.weight", {32, 16});
  CHECK(kept(plan, qkv, 3, 4) == std::vector<Interval>{{12, 4}, {20, 4}, {28, 4}});
  CHECK(kept(plan, qkv, 2, 4) == std::vector<Interval>{{8, 4}, {20, 4}, {28, 4}});
  const TensorInfo gate_up = tensor("model.layers.0.mlp.gate_up_proj.weight", {48, 16});
  CHECK(kept(plan, gate_up, 1, 4) == std::vector<Interval>{{6, 6}, {30, 6}});
  const TpPlan all_heads = TpPlan::automatic(
      R"({"num_attention_heads": 4, "num_key_value_heads": null, "model_type": "phi3"})");
  CHECK(shard(all_heads, tensor("model.layers.0.self_attn.qkv_proj.weight", {48, 16}), 0, 4) ==
        Shape{12, 16});
}

TEST_CASE("bloom, with and without its prefix", "[placement]") {
  const auto heads = GENERATE(as<std::string>{}, "n_head", "num_attention_heads");
  const std::string config = R"({"model_type": "bloom", ")" + heads + R"(": 4})";
  check_model(config, bloom);
  check_model(config, bloom, "transformer.");
  check_model(config, lm_head);
}

TEST_CASE("gpt_neox", "[placement]") {
  const std::string config = R"({"model_type": "gpt_neox", "num_attention_heads": 4})";
  check_model(config, gpt_neox, "gpt_neox.");
  check_model(config, {{"embed_out.weight", {40, 16}, {20, 16}, {10, 16}}});
}

TEST_CASE("falcon of the second generation: groups are cut only among ranks that share one",
          "[placement]") {
  const auto config =
      GENERATE(as<std::string>{},
               R"({"model_type": "falcon", "new_decoder_architecture": true, "multi_query": true,
          "num_attention_heads": 4, "num_kv_heads": 2})",
               R"({"model_type": "RefinedWeb", "n_head": 4, "n_head_kv": 2})");
  check_model(config, falcon({falcon_weight.c_str(), {32, 16}, {16, 16}, {12, 16}}),
              "transformer.");
  check_model(config, lm_head);
  const TpPlan plan = TpPlan::automatic(config);
  const TensorInfo qkv = tensor("transformer." + falcon_weight, {32, 16});
  CHECK(kept(plan, qkv, 1, 2) == std::vector<Interval>{{16, 16}});
  CHECK(kept(plan, qkv, 0, 4) == std::vector<Interval>{{0, 4}, {8, 8}});
  CHECK(kept(plan, qkv, 3, 4) == std::vector<Interval>{{20, 12}});
}

TEST_CASE("falcon of the first generation: one KV head for all, or one each", "[placement]") {
  const auto multi = GENERATE(
      as<std::string>{}, R"({"model_type": "falcon", "num_attention_heads": 4, "num_kv_heads": 4})",
      R"({"model_type": "RefinedWebModel", "n_head": 4, "multi_query": true})");
  check_model(multi, falcon({falcon_weight.c_str(), {24, 16}, {16, 16}, {12, 16}}), "transformer.");
  CHECK(kept(TpPlan::automatic(multi), tensor(falcon_weight, {24, 16}), 1, 4) ==
        std::vector<Interval>{{4, 4}, {16, 8}});
  const std::string single =
      R"({"model_type": "falcon", "num_attention_heads": 4, "multi_query": false})";
  check_model(single, falcon({falcon_weight.c_str(), {48, 16}, {24, 16}, {12, 16}}),
              "transformer.");
}

TEST_CASE("heads that do not divide are an error, and so are rules without head counts",
          "[placement]") {
  const TensorInfo q = tensor("model.layers.0.self_attn.q_proj.weight", {24, 16});
  const auto plan = [](const std::string& heads) {
    return TpPlan::automatic(R"({"model_type": "llama")" + heads + "}");
  };
  CHECK_THROWS_AS(plan(R"(, "num_attention_heads": 3)").place(q, 4), PlanError);
  CHECK_THROWS_AS(plan(R"(, "num_attention_heads": 5)").place(q, 5), PlanError);
  CHECK(shard(plan(R"(, "num_attention_heads": 3)"), q, 0, 1) == q.shape);
  CHECK(failure<ConfigError>([&] { plan("").place(q, 2); }).tensor == q.name);
  const TpPlan falcon_7b =
      TpPlan::automatic(R"({"model_type": "falcon", "num_attention_heads": 71})");
  CHECK_THROWS_AS(falcon_7b.place(tensor(falcon_weight, {4672, 4544}), 2), PlanError);
}

TEST_CASE("what a quantisation method stores is not cut as a weight would be", "[placement]") {
  const std::string config =
      R"({"model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 2})";
  const TpPlan built_in = TpPlan::automatic(config);
  const std::string layer = "model.layers.0.self_attn.q_proj.";
  for (const char* stored :
       {"qweight", "qzeros", "scales", "g_idx", "weight_packed", "weight_shape", "weight_scale",
        "weight_scale_inv", "SCB", "weight.absmax", "W_q"}) {
    const TensorInfo info = tensor(layer + stored, {16, 16});
    CAPTURE(stored);
    CHECK(failure<PlanError>([&] { built_in.place(info, 2); }).tensor == info.name);
    CHECK(shard(built_in, info, 0, 1) == info.shape);
    const TpPlan own = TpPlan::from_json(
        std::string(R"({"tp_plan": {"layers.*.self_attn.q_proj.)") + stored + R"(": "rowwise"}})",
        config, "rules.json");
    CHECK(shard(own, info, 1, 2) == Shape{16, 8});
  }
  CHECK(shard(built_in, tensor(layer + "weight_scale_2", {}), 1, 2) == Shape{});
}

TEST_CASE("the language model inside a multimodal one is placed, its towers are left whole",
          "[placement]") {
  const std::string text = R"("num_attention_heads": 4, "num_key_value_heads": 2})";
  struct Row {
    std::string config;
    std::string layers;
    const char* head;
    const char* tower;
  };
  const auto row = GENERATE_COPY(
      Row{R"({"model_type": "llama", )" + text, "model.", "lm_head", "vision_model.encoder."},
      Row{R"({"model_type": "mistral3", "text_config": {"model_type": "mistral", )" + text + "}",
          "language_model.model.", "language_model.lm_head", "vision_tower.transformer."},
      Row{R"({"model_type": "internvl_chat", "llm_config": {"model_type": "qwen2", )" + text + "}",
          "language_model.model.", "language_model.lm_head", "vision_model.encoder."},
      Row{R"({"model_type": "qwen3_vl", "text_config": {"model_type": "qwen3_vl_text", )" + text +
              "}",
          "model.language_model.", "lm_head", "model.visual."},
      Row{R"({"model_type": "smolvlm", "text_config": {"model_type": "llama", )" + text + "}",
          "model.text_model.", "lm_head", "model.vision_model.encoder."},
      Row{R"({"model_type": "qwen3_omni_moe", "thinker_config": {
              "model_type": "qwen3_omni_moe_thinker",
              "text_config": {"model_type": "qwen3_omni_moe_text", )" +
              text + "}}",
          "thinker.model.", "thinker.lm_head", "thinker.audio_tower."});
  CAPTURE(row.config);
  const TpPlan plan = TpPlan::automatic(row.config);
  const std::string k = "layers.0.self_attn.k_proj.weight";
  CHECK(shard(plan, tensor(row.layers + k, {8, 16}), 1, 4) == Shape{4, 16});
  CHECK(shard(plan, tensor(row.head + std::string(".weight"), {40, 16}), 1, 4) == Shape{10, 16});
  CHECK(plan.place(tensor(row.tower + k, {9, 9}), 2).kind == Placement::Kind::replicated);
}

TEST_CASE("a config.json that gives no model type says why", "[placement]") {
  const auto cause = [](const std::string& config) {
    return failure<ConfigError>([&] { TpPlan::automatic(config); }).cause;
  };
  CHECK(
      cause("").starts_with("config.json, which selects the built-in rules, is missing or empty "
                            "(copy the model's next to its files); pass a rule file"));
  CHECK(cause("{}").starts_with("config.json has no model_type; pass a rule file"));
  CHECK(cause(R"({"model_type": "own"})")
            .starts_with("no built-in rules for model_type 'own' ('safeshuffle models' lists"));
  CHECK(cause(R"({"error": "Entry not found"})")
            .starts_with("config.json: this is a server's error message"));
  CHECK(cause("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
            .starts_with("this is a Git LFS pointer"));
  CHECK(cause("<!DOCTYPE html><html>").starts_with("this is an HTML page"));
}

Catalog small_catalog(const std::vector<std::string>& names) {
  std::vector<TensorInfo> tensors;
  for (const std::string& name : names) {
    tensors.push_back(tensor(name, {8, 8}));
    tensors.back().bytes = 128;
  }
  return Catalog({{}}, tensors);
}

TEST_CASE("rules say why targets are replicated, and nothing of what is left out", "[placement]") {
  const Catalog catalog = small_catalog({"model.embed_tokens.weight", "visual.a.weight",
                                         "visual.b.weight", "other.weight", "visual.c.weight"});
  const TpPlan plan = TpPlan::automatic(
      R"({"model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 2})");
  const std::vector<bool> selected{true, true, true, true, false};
  const auto replicated = plan.whole(catalog, stored_targets(plan.place_all(catalog, 2, selected)));
  REQUIRE(replicated.size() == 2);
  const std::uint64_t each = catalog.tensors()[0].bytes;
  CHECK((replicated[0].key == "visual" && replicated[0].bytes == 2 * each));
  CHECK((replicated[1].key.empty() && replicated[1].bytes == each));
}

TEST_CASE("KV heads that config.json does not count are not taken for query heads", "[placement]") {
  const std::string layer = "model.layers.0.self_attn.";
  const TpPlan plan = TpPlan::automatic(R"({"model_type": "llama", "num_attention_heads": 8})");
  const auto place = [&](std::uint64_t rows, std::uint32_t world) {
    const Catalog catalog =
        testing::make_catalog({{{"model.embed_tokens.weight", DType::F32, {64, 64}},
                                {layer + "q_proj.weight", DType::F32, {64, 64}},
                                {layer + "k_proj.weight", DType::F32, {rows, 64}}}});
    return plan.place_all(catalog, world);
  };
  CHECK_NOTHROW(place(64, 8));
  CHECK_NOTHROW(place(16, 1));
  const ErrorRecord record = failure<ConfigError>([&] { place(16, 2); });
  CHECK(record.tensor == layer + "k_proj.weight");
  CHECK(contains(record.cause, "num_key_value_heads"));
  CHECK_NOTHROW(TpPlan::from_json(R"({"rules": [{"match": "a", "style": "colwise"}]})",
                                  R"({"num_kv_heads": [3, 4]})", "rules.json"));  // as OpenELM
}

TEST_CASE("an inner config may lack what its type has by default", "[placement]") {
  const auto kept = [](const std::string& inner) {  // of what the second of eight ranks has
    const TpPlan plan =
        TpPlan::automatic(R"({"model_type": "gemma3", "text_config": )" + inner + "}");
    const Placement k = plan.place(tensor("model.layers.0.self_attn.k_proj.weight", {1024, 64}), 8);
    std::vector<Interval> intervals;
    append_intervals(k.split, 1024, 1, 8, intervals);
    return intervals;
  };
  CHECK(kept(R"({"model_type": "gemma3_text"})") == std::vector<Interval>{{0, 256}});  // 4 heads
  CHECK(kept(R"({"model_type": "gemma3_text", "num_key_value_heads": 8})") ==
        std::vector<Interval>{{128, 128}});
  CHECK_THROWS_AS(TpPlan::automatic(R"({"model_type": "gemma3_text"})")
                      .place(tensor("model.layers.0.self_attn.k_proj.weight", {1024, 64}), 8),
                  ConfigError);
}

TEST_CASE("what stands in place of a layer is not cut as the layer", "[placement]") {
  const TpPlan plan = TpPlan::automatic(
      R"({"model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 2})");
  const TensorInfo adapter =
      tensor("model.layers.0.self_attn.q_proj.lora_A.default.weight", {16, 64});
  CHECK(contains(failure<PlanError>([&] { plan.place(adapter, 2); }).cause, "'lora_A'"));
  CHECK(plan.place(adapter, 1).kind == Placement::Kind::sharded);
}

TEST_CASE("stacked experts are cut along the axis that is not the hidden one", "[placement]") {
  struct Row {
    Shape up, down;
    std::uint32_t up_axis, down_axis;
  };
  const auto row = GENERATE(Row{{4, 64, 96}, {4, 48, 64}, 2, 1},   // as published
                            Row{{4, 96, 64}, {4, 64, 48}, 1, 2},   // as transformers computes
                            Row{{4, 64, 64}, {4, 64, 64}, 2, 1});  // as published, of equal sizes
  const std::string experts = "model.language_model.layers.0.mlp.experts.";
  const Catalog catalog = testing::make_catalog({{{experts + "gate_up_proj", DType::BF16, row.up},
                                                  {experts + "down_proj", DType::BF16, row.down}}});
  const auto placements =
      TpPlan::automatic(R"({"model_type": "qwen3_vl_moe", "text_config": {"hidden_size": 64,
          "model_type": "qwen3_vl_moe_text", "num_attention_heads": 4, "num_key_value_heads": 2}})")
          .place_all(catalog, 2, {}, TpPlan::Extent::part);
  CHECK(placements[0].split.axis == row.up_axis);
  CHECK(placements[1].split.axis == row.down_axis);
}

TEST_CASE("an unknown type is loaded by the rules that know all its names", "[placement]") {
  const std::string config =
      R"({"model_type": "own", "num_attention_heads": 4, "num_key_value_heads": 2})";
  const std::vector<std::string> names{
      "model.embed_tokens.weight", "model.layers.0.self_attn.k_proj.weight",
      "model.layers.0.mlp.down_proj.weight", "model.layers.0.input_layernorm.weight"};
  const Catalog catalog = small_catalog(names);
  const TpPlan plan = TpPlan::automatic(config, catalog);
  CHECK(shard(plan, catalog.tensors()[1], 1, 4) == Shape{4, 8});
  CHECK(plan.warnings(catalog, 2) ==
        std::vector<std::string>{
            "no built-in rules for model_type 'own' ('safeshuffle models' lists those that have): "
            "all tensors have the names of 'llama', whose rules apply"});

  const auto cause = [&](std::vector<std::string> some) {
    const Catalog other = small_catalog(some);
    return failure<ConfigError>([&] { TpPlan::automatic(config, other); }).cause;
  };
  std::vector<std::string> more = names;
  more.push_back("model.layers.0.self_attn.gating.weight");
  CHECK(contains(cause(more),
                 "the nearest, 'llama', does not know "
                 "model.layers.*.self_attn.gating.weight; to start from its rules: "
                 "'safeshuffle rules --built-in llama > rules.json'"));
  more = names;
  more.push_back("model.layers.0.self_attn.k_proj.inner.weight");  // below a module that is known
  CHECK(contains(cause(more), "does not know model.layers.*.self_attn.k_proj.inner.weight"));
  CHECK(contains(cause({"transformer.h.0.mlp.fc_in.weight"}),
                 "requires names that the checkpoint lacks"));
  CHECK(contains(cause({"a.weight", "b.weight"}), "none is near; pass a rule file"));
  CHECK(contains(cause({"transformer.word_embeddings.weight", "transformer.ln_f.weight",
                        "transformer.h.0.self_attention.query_key_value.weight",
                        "transformer.h.0.self_attention.dense.weight",
                        "transformer.h.0.mlp.dense_h_to_4h.weight",
                        "transformer.h.0.mlp.dense_4h_to_h.weight"}),
                 "the names of both 'bloom' and 'falcon'"));
}

TEST_CASE("real checkpoints are placed for 1, 4 and 8 ranks", "[placement]") {
  struct Model {
    const char* config;
    const Families* families;
  };
  const auto model = GENERATE(
      Model{R"({"model_type": "llama", "num_attention_heads": 64, "num_key_value_heads": 8})",
            &llama_70b},
      Model{R"({"model_type": "bloom", "num_attention_heads": 112})", &bloom_176b},
      Model{R"({"model_type": "falcon", "new_decoder_architecture": true, "multi_query": true,
               "num_attention_heads": 232, "num_kv_heads": 8})",
            &falcon_180b});
  const TpPlan plan = TpPlan::automatic(model.config);
  for (const auto& [name, expected] : *model.families) {
    for (const std::uint32_t world : {1U, 4U, 8U}) check_family(plan, name, expected, world);
  }
}

TEST_CASE("built-in rules given back as a file make the same plan", "[placement]") {
  const auto model = GENERATE(as<std::string>{}, "llama-2-70b", "bloom-176b", "falcon-180b");
  const synth::Layout layout = synth::load_layout(model);
  std::vector<testing::Made> tensors;
  for (const synth::LayoutFile& file : layout.files) {
    for (const auto& item : file.tensors) {
      tensors.push_back(
          {item.name, DType::BF16, model_families.at(model)->at(family(item.name)).shape});
    }
  }
  const Catalog catalog = testing::make_catalog({tensors});
  const TpPlan automatic = TpPlan::automatic(layout.config);
  const TpPlan given = TpPlan::from_json(automatic.to_json(), layout.config, "rules.json");
  const auto hash = [&](const TpPlan& rules) {
    return make_plan(catalog, rules.place_all(catalog, 8), 8).hash();
  };
  CHECK(hash(given) == hash(automatic));
  CHECK(hash(given) != hash(TpPlan::replicate_all()));
}

TEST_CASE("every name of the real layouts has its place", "[placement]") {
  for (const auto& [model, families] : model_families) {
    const synth::Layout layout = synth::load_layout(model);
    const TpPlan plan = TpPlan::automatic(layout.config);
    for (const synth::LayoutFile& file : layout.files) {
      for (const auto& item : file.tensors) {
        check_family(plan, item.name, families->at(family(item.name)), 8);
      }
    }
  }
}
