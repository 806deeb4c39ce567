// What Options::tp_plan stands for.
#include "pipeline/tp_rules.hpp"

#include "safeshuffle/error.hpp"

#include "support/catch.hpp"

using namespace safeshuffle;

TEST_CASE("one rank needs no config.json, a group does", "[tp_rules]") {
  const TensorInfo tensor{.name = "w", .dtype = DType::F32, .shape = {2, 2}, .bytes = 16};
  const TpPlan alone = pipeline::make_tp_plan("auto", {}, {}, 1);
  CHECK(alone.place(tensor, 1).kind == Placement::Kind::replicated);
  CHECK_THROWS_AS(pipeline::make_tp_plan("auto", {}, {}, 2), ConfigError);
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
