// What Options::tp_plan stands for.
#include "pipeline/tp_rules.hpp"

#include <string>
#include <utility>

#include "safeshuffle/error.hpp"

#include "support/catch.hpp"

using namespace safeshuffle;

namespace {

Checkpoint with_config(std::string json) {
  Checkpoint checkpoint;
  checkpoint.config_json = std::move(json);
  return checkpoint;
}

}  // namespace

TEST_CASE("one rank needs no config.json, a group does", "[tp_rules]") {
  const TensorInfo tensor{.name = "w", .dtype = DType::F32, .shape = {2, 2}, .bytes = 16};
  const TpPlan alone = pipeline::make_tp_plan({}, {}, {}, 1);
  CHECK(alone.place(tensor, 1).kind == Placement::Kind::replicated);
  CHECK_THROWS_AS(pipeline::make_tp_plan({}, {}, {}, 2), ConfigError);
}

TEST_CASE("one rank needs config.json for a stage, and to deal experts", "[tp_rules]") {
  Options options;
  options.selection.stage = PipelineStage{0, 1};
  CHECK_THROWS_AS(pipeline::make_tp_plan(options, {}, {}, 1), ConfigError);
  CHECK_NOTHROW(pipeline::make_tp_plan(
      options, {}, with_config(R"({"model_type": "llama", "num_attention_heads": 4})"), 1));
  options = {};
  options.experts = ExpertPlacement::parallel;
  CHECK_THROWS_AS(pipeline::make_tp_plan(options, {}, {}, 1), ConfigError);
  CHECK_NOTHROW(pipeline::make_tp_plan(
      options, {}, with_config(R"({"model_type": "mixtral", "num_attention_heads": 4})"), 1));
}

TEST_CASE("experts are dealt if the options say so", "[tp_rules]") {
  const TensorInfo up{.name = "m.experts.3.up", .dtype = DType::F32, .shape = {4, 2}, .bytes = 32};
  const std::string rules =
      R"({"tp_plan": {"m.experts.*.up": "colwise"}, "experts": {"match": "m.experts", "count": 4}})";
  Options options;
  options.tp_plan = "rules.json";
  CHECK(pipeline::make_tp_plan(options, rules, {}, 2).place(up, 2).kind ==
        Placement::Kind::sharded);
  options.experts = ExpertPlacement::parallel;
  CHECK(pipeline::make_tp_plan(options, rules, {}, 2).place(up, 2).rank == 1);
}

TEST_CASE("a rule file that cannot be read is an I/O error with its name", "[tp_rules]") {
  try {
    pipeline::read_rules("/nonexistent/rules.json");
    FAIL("no exception");
  } catch (const IoError& error) {
    CHECK(error.record().file == "/nonexistent/rules.json");
  }
  CHECK(pipeline::read_rules("auto").empty());
}
