// placement: which tensors the stages of a pipeline have.
#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "safeshuffle/error.hpp"
#include "safeshuffle/placement.hpp"

#include "support/catch.hpp"
#include "support/failure.hpp"
#include "support/placement.hpp"

using namespace safeshuffle;
using testing::failure;
using testing::tensor;

namespace {

Catalog catalog_named(const std::vector<std::string>& names) {
  std::vector<FileInfo> files(1);
  files[0].path = "a.safetensors";
  std::vector<TensorInfo> tensors;
  for (const std::string& name : names) tensors.push_back(tensor(name, {8, 8}));
  return {std::move(files), std::move(tensors)};
}

std::vector<std::string> model_of(std::uint32_t layers,
                                  const std::vector<std::string>& ends = {
                                      "model.embed_tokens.weight", "model.norm.weight",
                                      "lm_head.weight"}) {
  std::vector<std::string> names = ends;
  for (std::uint32_t i = 0; i < layers; ++i) {
    names.push_back("model.layers." + std::to_string(i) + ".mlp.up_proj.weight");
  }
  return names;
}

std::string config_of(std::uint32_t layers, const std::string& more = "") {
  return R"({"model_type": "llama", "num_attention_heads": 4, "num_hidden_layers": )" +
         std::to_string(layers) + more + "}";
}

TpPlan parse_stages(const std::string& pipeline, const std::string& config = "") {
  return TpPlan::from_json(R"({"tp_plan": {}, "pipeline": )" + pipeline + "}", config,
                           "rules.json");
}

const std::string llama_section =
    R"({"embedding": "embed_tokens", "layers": "layers", "last": "norm", "head": "lm_head")";

/// The names of the tensors of a stage.
std::vector<std::string> names_of(const TpPlan& plan, const std::vector<std::string>& names,
                                  PipelineStage stage) {
  const Catalog catalog = catalog_named(names);
  const std::vector<bool> in = plan.in_stage(catalog, stage);
  std::vector<std::string> result;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (in[i]) result.push_back(catalog.tensors()[i].name);
  }
  return result;
}

/// How many layers each stage has.
std::vector<std::size_t> layers_by_stage(const TpPlan& plan, std::uint32_t layers,
                                         std::uint32_t stages) {
  std::vector<std::size_t> counts;
  for (std::uint32_t i = 0; i < stages; ++i) {
    counts.push_back(names_of(plan, model_of(layers, {}), {i, stages}).size());
  }
  return counts;
}

using Counts = std::vector<std::size_t>;
using Names = std::vector<std::string>;

template <class Exception = ConfigError>
std::string cause(const TpPlan& plan, const Names& names, PipelineStage stage) {
  return describe(failure<Exception>([&] { names_of(plan, names, stage); }));
}

}  // namespace

TEST_CASE("layers are dealt in order, as vLLM does", "[placement]") {
  const auto counts = [](std::uint32_t layers, std::uint32_t stages) {
    return layers_by_stage(TpPlan::automatic(config_of(layers)), layers, stages);
  };
  CHECK(counts(1, 1) == Counts{1});
  CHECK(counts(8, 4) == Counts{2, 2, 2, 2});
  CHECK(counts(5, 4) == Counts{1, 1, 2, 1});
  CHECK(counts(6, 4) == Counts{1, 2, 2, 1});
  CHECK(counts(7, 4) == Counts{2, 2, 2, 1});
  CHECK(counts(5, 2) == Counts{3, 2});
  CHECK(counts(5, 3) == Counts{2, 2, 1});
  CHECK(counts(61, 8) == Counts{7, 7, 8, 8, 8, 8, 8, 7});
}

TEST_CASE("for any number of stages, each tensor is in one stage, in order", "[placement]") {
  const std::uint32_t layers = GENERATE(1U, 2U, 7U, 12U);
  const Names model = model_of(layers);
  const TpPlan plan = TpPlan::automatic(config_of(layers, R"(, "tie_word_embeddings": false)"));
  for (std::uint32_t stages = 1; stages <= layers; ++stages) {
    CAPTURE(layers, stages);
    Names together;
    for (std::uint32_t i = 0; i < stages; ++i) {
      const Names part = names_of(plan, model, {i, stages});
      CHECK(part.size() >= 1);
      together.insert(together.end(), part.begin(), part.end());
    }
    Names expected{"model.embed_tokens.weight"};
    for (const std::string& name : model_of(layers, {})) expected.push_back(name);
    CHECK(std::is_permutation(together.begin(), together.end(), model.begin(), model.end()));
    std::erase(together, "model.norm.weight");
    std::erase(together, "lm_head.weight");
    CHECK(together == expected);
    CHECK(plan.in_stage(catalog_named(model), {stages - 1, stages})[0] == (stages == 1));
  }
}

TEST_CASE("what is before the layers is in the first stage, what is after in the last",
          "[placement]") {
  const TpPlan plan = TpPlan::automatic(R"({"model_type": "bloom", "n_head": 4, "n_layer": 2})");
  const Names model{"word_embeddings.weight",
                    "word_embeddings_layernorm.bias",
                    "h.0.mlp.dense_h_to_4h.weight",
                    "h.1.mlp.dense_h_to_4h.weight",
                    "ln_f.bias",
                    "lm_head.weight"};
  CHECK(names_of(plan, model, {0, 2}) == Names(model.begin(), model.begin() + 3));
  CHECK(names_of(plan, model, {1, 2}) == Names(model.begin() + 3, model.end()));
  CHECK(names_of(plan, model, {0, 1}) == model);
}

TEST_CASE("the number of layers is a field of config.json, or in the rules", "[placement]") {
  const auto config =
      GENERATE(as<std::string>{}, R"({"num_hidden_layers": 3})", R"({"n_layer": 3})",
               R"({"num_layers": 3})", R"({"text_config": {"num_hidden_layers": 3}})");
  CHECK(layers_by_stage(parse_stages(llama_section + "}", config), 3, 3) == Counts{1, 1, 1});
  CHECK(layers_by_stage(parse_stages(llama_section + R"(, "count": 3})"), 3, 3) == Counts{1, 1, 1});
  CHECK(layers_by_stage(
            parse_stages(llama_section + R"(, "count": ["n", "depth"]})", R"({"depth": 3})"), 3,
            3) == Counts{1, 1, 1});
  const TpPlan unknown = parse_stages(llama_section + "}");
  CHECK(cause(unknown, model_of(3), {0, 2})
            .find("rules.json: \"pipeline\": config.json does not give the "
                  "number of "
                  "layers (num_hidden_layers, n_layer or num_layers); write it as \"count\"") !=
        std::string::npos);
}

TEST_CASE("a rule file may list the numbers of layers by stage", "[placement]") {
  const std::string listed = llama_section + R"(, "layers_per_stage": [1, 4, 2]})";
  CHECK(layers_by_stage(parse_stages(listed), 7, 3) == Counts{1, 4, 2});
  CHECK(layers_by_stage(parse_stages(listed, config_of(7)), 7, 3) == Counts{1, 4, 2});
  CHECK(names_of(parse_stages(listed), model_of(7), {1, 3}) ==
        Names{"model.layers.1.mlp.up_proj.weight", "model.layers.2.mlp.up_proj.weight",
              "model.layers.3.mlp.up_proj.weight", "model.layers.4.mlp.up_proj.weight"});
  CHECK(cause(parse_stages(listed), model_of(7), {0, 4})
            .find("\"pipeline.layers_per_stage\": is for 3 stages, not 4") != std::string::npos);
  CHECK(failure<ConfigError>([&] {
          parse_stages(listed, config_of(8));
        }).cause.ends_with("adds up to 7 layers, but the model has 8"));
}

TEST_CASE("a tied embedding is in the first and the last stage", "[placement]") {
  const Names both = model_of(2);
  const Names embedding = model_of(2, {"model.embed_tokens.weight", "model.norm.weight"});
  const Names head = model_of(2, {"lm_head.weight", "model.norm.weight"});
  const auto first = [](const std::string& config, const Names& names) {
    return names_of(TpPlan::automatic(config), names, {0, 2}).front();
  };
  const auto has = [](const std::string& config, const Names& names, std::uint32_t stage,
                      const std::string& name) {
    const Names in = names_of(TpPlan::automatic(config), names, {stage, 2});
    return std::find(in.begin(), in.end(), name) != in.end();
  };
  const std::string tied = GENERATE(as<std::string>{}, R"(, "tie_word_embeddings": true)",
                                    R"(, "text_config": {"tie_word_embeddings": true})");
  const std::string untied = R"(, "tie_word_embeddings": false)";
  CHECK(has(config_of(2, tied), both, 1, "model.embed_tokens.weight"));
  CHECK(has(config_of(2, tied), embedding, 1, "model.embed_tokens.weight"));
  CHECK(has(config_of(2, tied), both, 0, "model.embed_tokens.weight"));
  CHECK_FALSE(has(config_of(2, tied), both, 0, "lm_head.weight"));
  CHECK(first(config_of(2, tied), head) == "lm_head.weight");
  CHECK(has(config_of(2, tied), head, 1, "lm_head.weight"));
  for (const Names& names : {both, embedding}) {
    CHECK_FALSE(has(config_of(2, untied), names, 1, "model.embed_tokens.weight"));
  }
  CHECK_FALSE(has(config_of(2, untied), head, 0, "lm_head.weight"));
}

TEST_CASE("without a field, weights are tied if the checkpoint has only one", "[placement]") {
  const TpPlan plan = TpPlan::automatic(config_of(2));
  const std::string embedding = "model.embed_tokens.weight";
  CHECK(names_of(plan, model_of(2, {embedding}), {1, 2}).front() == embedding);
  CHECK(names_of(plan, model_of(2, {"lm_head.weight"}), {0, 2}).front() == "lm_head.weight");
  CHECK(names_of(plan, model_of(2, {embedding, "lm_head.weight"}), {1, 2}).front() ==
        "lm_head.weight");
}

TEST_CASE("config.json ties weights that the rules do not name", "[placement]") {
  const std::string section = R"({"first": "embed_tokens", "layers": "layers", "last": "lm_head"})";
  CHECK_NOTHROW(parse_stages(section, R"({"tie_word_embeddings": false})"));
  const auto record =
      failure<ConfigError>([&] { parse_stages(section, R"({"tie_word_embeddings": true})"); });
  CHECK(record.cause.find("\"pipeline.embedding\": missing: \"tie_word_embeddings\"") !=
        std::string::npos);
  CHECK(failure<ConfigError>([&] {
          parse_stages(llama_section + "}", R"({"tie_word_embeddings": 1})");
        }).cause.find("not true or false") != std::string::npos);
}

TEST_CASE("a tensor that belongs to no stage is an error that names it", "[placement]") {
  const TpPlan plan = TpPlan::automatic(config_of(2));
  Names names = model_of(2);
  const auto error_of = [&](const std::string& name) {
    Names more = names;
    more.push_back(name);
    return failure<PlanError>([&] { names_of(plan, more, {0, 2}); });
  };
  const ErrorRecord vision = error_of("patches.weight");
  CHECK(vision.file == "a.safetensors");
  CHECK(vision.tensor == "patches.weight");
  CHECK(vision.cause.find("belongs to no pipeline stage: no module in the section \"pipeline\" of "
                          "built-in rules 'llama' matches it") == 0);
  CHECK(error_of("model.layers.2.mlp.up_proj.weight")
            .cause.find("belongs to layer 2, counted from 0, but the pipeline has 2 layers") == 0);
  CHECK(error_of("model.layers.99999999999999999999.w").cause.find("belongs to layer") == 0);
  CHECK(error_of("model.layers.norm.weight").cause.find("belongs to no pipeline stage") == 0);
  CHECK(error_of("model.layers.1a.weight").cause.find("belongs to no pipeline stage") == 0);
}

TEST_CASE("stages that a model does not have are refused", "[placement]") {
  const TpPlan plan = TpPlan::automatic(config_of(2));
  CHECK(cause(plan, model_of(2), {0, 3}) == "2 layers cannot be dealt to 3 pipeline stages");
  CHECK(cause(plan, model_of(2), {2, 2}).find("there is no pipeline stage 2") == 0);
  CHECK(cause(plan, model_of(2), {0, 0}).find("there is no pipeline stage 0") == 0);
}

TEST_CASE("rules without a pipeline say what to write", "[placement]") {
  const std::string config = config_of(2);
  for (const TpPlan& plan :
       {TpPlan::replicate_all(), TpPlan::from_json(R"({"tp_plan": {}})", config, "rules.json"),
        TpPlan::from_json(R"({"lm_head": "colwise"})", config, "bare.json")}) {
    const std::string message = cause(plan, model_of(2), {0, 2});
    CAPTURE(message);
    CHECK(message.find("no section \"pipeline\"") != std::string::npos);
    CHECK(message.find("pass a rule file with, for example, \"pipeline\": {\"embedding\": ") !=
          std::string::npos);
  }
}

TEST_CASE("defects of the section pipeline are named", "[placement]") {
  struct Row {
    std::string section;
    const char* message;
  };
  const std::vector<Row> rows{
      {"[]", "\"pipeline\": not a JSON object"},
      {R"({"first": "a"})", "\"pipeline.layers\": missing"},
      {R"({"layers": []})", "\"pipeline.layers\": missing"},
      {R"({"layers": "h", "stages": 2})", "\"pipeline.stages\": unknown field"},
      {R"({"layers": 1})", "\"pipeline.layers\": not a string"},
      {R"({"layers": ""})", "\"pipeline.layers\": empty"},
      {R"({"layers": "h", "last": ["n", 1]})", "\"pipeline.last\": not a string"},
      {R"({"layers": "h", "first": "n", "last": "model.n"})",
       "\"pipeline.last\": \"model.n\" matches the same names as another entry"},
      {R"({"layers": "h", "count": 0})", "\"pipeline.count\": not a positive integer"},
      {R"({"layers": "h", "count": "depth"})", "config.json does not give 'depth'"},
      {R"({"layers": "h", "count": "elements"})", "\"elements\" has no meaning here"},
      {R"({"layers": "h", "layers_per_stage": 2})", "not a list of numbers of layers"},
      {R"({"layers": "h", "layers_per_stage": []})", "not a list of numbers of layers"},
      {R"({"layers": "h", "layers_per_stage": [1, 0]})", "not positive integers"},
      {R"({"layers": "h", "layers_per_stage": [1, 1.5]})", "not positive integers"},
      {R"({"layers": "h", "layers_per_stage": [18446744073709551615, 1]})", "are too large"},
      {R"({"layers": "h", "count": 3, "layers_per_stage": [1, 1]})",
       "adds up to 2 layers, but the model has 3"},
  };
  for (const Row& row : rows) {
    const std::string message = describe(failure<ConfigError>([&] { parse_stages(row.section); }));
    CAPTURE(row.section, message);
    CHECK(message.find(row.message) != std::string::npos);
  }
}

TEST_CASE("the built-in rules know the stages of every model", "[placement]") {
  struct Row {
    const char* type;
    Names first;
    Names layer;
    Names last;
  };
  const auto row = GENERATE(Row{"llama",
                                {"model.embed_tokens.weight"},
                                {"model.layers.0.a"},
                                {"model.norm.weight", "lm_head.weight"}},
                            Row{"gemma3_text",
                                {"model.embed_tokens.weight"},
                                {"model.layers.0.a"},
                                {"model.norm.weight"}},
                            Row{"phi3",
                                {"model.embed_tokens.weight"},
                                {"model.layers.0.a"},
                                {"model.norm.weight", "lm_head.weight"}},
                            Row{"mixtral",
                                {"model.embed_tokens.weight"},
                                {"model.layers.0.a"},
                                {"model.norm.weight", "lm_head.weight"}},
                            Row{"qwen2_moe",
                                {"model.embed_tokens.weight"},
                                {"model.layers.0.a"},
                                {"model.norm.weight", "lm_head.weight"}},
                            Row{"qwen3_moe",
                                {"model.embed_tokens.weight"},
                                {"model.layers.0.a"},
                                {"model.norm.weight", "lm_head.weight"}},
                            Row{"falcon",
                                {"transformer.word_embeddings.weight"},
                                {"transformer.h.0.a"},
                                {"transformer.ln_f.bias", "lm_head.weight"}},
                            Row{"bloom",
                                {"word_embeddings.weight", "word_embeddings_layernorm.weight"},
                                {"h.0.a"},
                                {"ln_f.weight"}},
                            Row{"gpt_neox",
                                {"gpt_neox.embed_in.weight"},
                                {"gpt_neox.layers.0.a"},
                                {"gpt_neox.final_layer_norm.weight", "embed_out.weight"}});
  CAPTURE(row.type);
  const TpPlan plan = TpPlan::automatic(std::string(R"({"tie_word_embeddings": false,
      "num_hidden_layers": 3, "num_attention_heads": 4, "model_type": ")") +
                                        row.type + "\"}");
  Names model = row.first;
  Names middle;
  for (const char digit : {'0', '1', '2'}) {
    std::string name = row.layer.front();
    name.replace(name.find('0'), 1, 1, digit);
    model.push_back(name);
    if (digit == '1') middle.push_back(name);
  }
  model.insert(model.end(), row.last.begin(), row.last.end());
  const auto begin = model.begin();
  const auto split = begin + static_cast<std::ptrdiff_t>(row.first.size());
  CHECK(names_of(plan, model, {0, 3}) == Names(begin, split + 1));
  CHECK(names_of(plan, model, {1, 3}) == middle);
  CHECK(names_of(plan, model, {2, 3}) == Names(split + 2, model.end()));
}
