// placement: quantised layers, beyond what tests/oracle/models.py loads: what is refused, and
// blocks that do not divide.
#include <string>
#include <string_view>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/placement.hpp"

#include "support/catalogs.hpp"
#include "support/catch.hpp"
#include "support/contains.hpp"
#include "support/failure.hpp"

using namespace safeshuffle;
using testing::contains;
using testing::failure;
using testing::Made;

namespace {

const std::string layer = "model.layers.0.mlp.gate_proj.";
constexpr const char* mlp_rules =
    R"({"tp_plan": {"layers.*.mlp.gate_proj": "colwise", "layers.*.mlp.down_proj": "rowwise"},
        "optional": ["layers.*.mlp.gate_proj", "layers.*.mlp.down_proj"]})";

std::string config(const std::string& quantisation) {
  return R"({"quantization_config": {)" + quantisation + "}}";
}

std::vector<Placement> place(const std::vector<Made>& tensors, const std::string& config_json,
                             std::uint32_t world, const std::string& rules_json = mlp_rules) {
  return TpPlan::from_json(rules_json, config_json, "rules.json")
      .place_all(testing::make_catalog({tensors}), world);
}

/// The message for two ranks, or for `world`.
std::string refusal(const std::vector<Made>& tensors, const std::string& config_json,
                    std::uint32_t world = 2) {
  return failure<PlanError>([&] { place(tensors, config_json, world); }).cause;
}

const std::vector<Made> gptq{{layer + "qweight", DType::I32, {32, 64}},
                             {layer + "qzeros", DType::I32, {4, 8}},
                             {layer + "scales", DType::F16, {4, 64}},
                             {layer + "g_idx", DType::I32, {256}}};

std::vector<Made> fp8(std::uint64_t rows) {
  return {{layer + "weight", DType::F8_E4M3, {rows, 256}},
          {layer + "weight_scale_inv", DType::F32, {(rows + 127) / 128, 2}}};
}

}  // namespace

TEST_CASE("without any one of the rules for what a method stores, a load is refused",
          "[placement]") {
  struct Method {
    const char* quantisation;
    std::vector<Made> stored;  // of a layer of 256 × 256
  };
  const auto method = GENERATE(
      Method{R"("quant_method": "gptq", "bits": 4)",
             {{"qweight", DType::I32, {32, 256}},
              {"qzeros", DType::I32, {4, 32}},
              {"scales", DType::F16, {4, 256}},
              {"g_idx", DType::I32, {256}}}},
      Method{R"("quant_method": "awq", "bits": 4)",
             {{"qweight", DType::I32, {256, 32}},
              {"qzeros", DType::I32, {4, 32}},
              {"scales", DType::F16, {4, 256}}}},
      Method{R"("quant_method": "compressed-tensors")",
             {{"weight_packed", DType::I32, {256, 32}},
              {"weight_scale", DType::BF16, {256, 4}},
              {"weight_zero_point", DType::I32, {32, 4}},
              {"weight_g_idx", DType::I32, {256}},
              {"weight_shape", DType::I64, {2}}}},
      Method{R"("quant_method": "fp8", "weight_block_size": [64, 64])",
             {{"weight", DType::F8_E4M3, {256, 256}}, {"weight_scale_inv", DType::F32, {4, 4}}}},
      Method{R"("quant_method": "fbgemm_fp8")",
             {{"weight", DType::F8_E4M3, {256, 256}},
              {"weight_scale", DType::F32, {256, 1}},
              {"input_scale_ub", DType::F32, {1}}}},
      Method{R"("quant_method": "modelopt")",
             {{"weight", DType::U8, {256, 128}},
              {"weight_scale", DType::F8_E4M3, {256, 16}},
              {"weight_scale_2", DType::F32, {1}},
              {"input_scale", DType::F32, {1}}}});
  const std::string module = GENERATE("gate_proj.", "down_proj.");
  std::vector<Made> stored = method.stored;
  for (Made& made : stored) made.name = "model.layers.0.mlp." + module + made.name;
  CAPTURE(method.quantisation, module);
  CHECK_NOTHROW(place(stored, config(method.quantisation), 2));
  for (std::size_t i = 0; i < stored.size(); ++i) {
    if (stored[i].shape == Shape{1}) continue;  // whole, whatever it is
    std::vector<Made> changed = stored;
    changed[i].name += "_x";  // as if the name were in no table
    CAPTURE(changed[i].name);
    CHECK_THROWS_AS(place(changed, config(method.quantisation), 2), PlanError);
  }
}

TEST_CASE("config.json and the files must say the same of quantisation", "[placement]") {
  struct Row {
    const char* quantisation;
    const char* message;
  };
  const auto row =
      GENERATE(Row{R"("quant_method": "hqq")", "method of config.json, 'hqq', is not supported"},
               Row{R"("quant_method": "fp8")", "method of config.json, 'fp8', stores no tensors"},
               Row{R"("quant_method": "gptq", "bits": 8)", R"(8 words for 64 outputs)"});
  CHECK(contains(refusal(gptq, config(row.quantisation)), row.message));
}

TEST_CASE("scales of GPTQ are not cut without knowing the order of the inputs", "[placement]") {
  const std::string own = R"("dynamic": {"+:.*down_proj": {"desc_act": true}})";
  CHECK(contains(refusal(gptq, ""), "put there what quantize_config.json has"));
  CHECK(contains(refusal(gptq, config(R"("quant_method": "gptq", )" + own)), "for some layers"));
  const std::string bits = R"("bits": 8, "dynamic": {"+:.*gate_proj": {"bits": 4}})";
  CHECK_NOTHROW(place(gptq, config(R"("quant_method": "gptq", )" + bits), 2));
}

TEST_CASE("scales without what they scale are of no known method", "[placement]") {
  const std::vector<Made> mlx{{layer + "scales", DType::F16, {256, 4}},
                              {layer + "weight", DType::U32, {256, 32}}};
  CHECK(contains(refusal(mlx, ""), "no \"qweight\""));
}

TEST_CASE("a single element beside a quantised weight is whole on every rank", "[placement]") {
  std::vector<Made> stored = fp8(512);
  stored.push_back({layer + "k_scale", DType::F32, {1}});
  CHECK(place(stored, config(R"("quant_method": "fp8")"), 2)[2].kind ==
        Placement::Kind::replicated);
}

TEST_CASE("blocks of compressed-tensors have the size of their group", "[placement]") {
  const std::vector<Made> stored{{layer + "weight", DType::F8_E4M3, {512, 2880}},
                                 {layer + "weight_scale", DType::BF16, {4, 23}}};
  const std::string groups =
      R"("config_groups": {"group_0": {"weights": {"block_structure": [128, 128]}}})";
  CHECK(contains(refusal(stored, ""), "do not fit the 2880"));
  CHECK_NOTHROW(place(stored, config(groups), 2));
}

TEST_CASE("blocks of a quantised layer are not parted", "[placement]") {
  struct Row {
    std::uint64_t rows;
    std::uint32_t world;
    const char* worlds;
  };
  const auto row = GENERATE(Row{10944, 2, "1"}, Row{768, 4, "1, 2, 3, 6"}, Row{512, 8, "1, 2, 4"},
                            Row{64, 2, "1"});
  const std::string message = refusal(fp8(row.rows), "", row.world);
  CHECK(contains(message, "in blocks of 128"));
  CHECK(message.ends_with(std::string("numbers of ranks that work: ") + row.worlds));
}

TEST_CASE("scales can cover what their ranks have of a block", "[placement]") {
  const std::vector<Placement> placements =
      place(fp8(10944), "", 2,
            R"({"rules": [{"match": "gate_proj", "style": "colwise", "covering": true}],
                "base_model_prefix": "model.layers.0.mlp"})");
  CHECK(shard_shape({10944, 256}, placements[0], 1, 2) == Shape{5472, 256});
  std::vector<Interval> kept;
  append_intervals(placements[1].split, 86, 0, 2, kept);
  append_intervals(placements[1].split, 86, 1, 2, kept);
  CHECK(kept == std::vector<Interval>{{0, 43}, {42, 44}});
}

TEST_CASE("tensors that do not fit the layer are refused", "[placement]") {
  std::vector<Made> changed = gptq;
  changed[2].shape = {4, 96};
  CHECK(contains(refusal(changed, ""), "do not fit the 96"));
  changed = gptq;
  changed[1].shape = {4, 8, 3};
  CHECK(contains(refusal(changed, config(R"("quant_method": "gptq")")), "more dimensions"));
  std::vector<Made> blocks = fp8(512);
  blocks[1].shape = {3, 2};
  CHECK(contains(refusal(blocks, ""), "do not fit the 512"));
  CHECK(contains(refusal(blocks, config(R"("weight_block_size": [128, 128])")),
                 "has 3 elements, but blocks of 128"));
}

TEST_CASE("MXFP4 experts: gate and up are cut as the blocks of down are", "[placement]") {
  const std::string experts = "model.layers.0.mlp.experts.";
  const std::vector<Made> stored{{experts + "gate_up_proj_blocks", DType::U8, {2, 192, 2, 16}},
                                 {experts + "gate_up_proj_bias", DType::BF16, {2, 192}},
                                 {experts + "down_proj_blocks", DType::U8, {2, 64, 3, 16}}};
  const auto rules_of = [](const std::string& more) {
    return R"({"rules": [{"match": "gate_up_proj_blocks", "dim": 1)" + more +
           R"(}, {"match": "gate_up_proj_bias", "dim": 1)" + more +
           R"(}, {"match": "down_proj_blocks", "dim": 2, "uneven": true}],
            "base_model_prefix": "model.layers.0.mlp.experts"})";
  };
  const ErrorRecord record = failure<PlanError>([&] { place(stored, "", 2, rules_of("")); });
  CHECK(record.tensor == experts + "gate_up_proj_blocks");
  CHECK(contains(record.cause, "in blocks of 64"));
  const auto placed = place(stored, "", 2, rules_of(R"(, "units": 3, "uneven": true)"));
  CHECK(shard_shape(stored[0].shape, placed[0], 0, 2) == Shape{2, 128, 2, 16});
  CHECK(shard_shape(stored[1].shape, placed[1], 1, 2) == Shape{2, 64});
  CHECK(shard_shape(stored[2].shape, placed[2], 1, 2) == Shape{2, 64, 1, 16});
}
