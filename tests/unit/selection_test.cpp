// Which tensors a selection leaves, and that rules need not place the others.
#include "safeshuffle/selection.hpp"

#include "safeshuffle/placement.hpp"

#include "support/catalogs.hpp"
#include "support/catch.hpp"
#include "support/failure.hpp"

using namespace safeshuffle;
using Selected = std::vector<bool>;

namespace {

Catalog four_tensors() {
  return testing::make_catalog({{{"layers.0.a", DType::F32, {4, 2}},
                                 {"layers.1.a", DType::F32, {4, 2}},
                                 {"layers.1.b", DType::F32, {3, 2}},
                                 {"norm", DType::F32, {8}}}});
}

TpPlan two_stages() {
  return TpPlan::from_json(
      R"({"tp_plan": {}, "pipeline": {"layers": "layers", "last": "norm", "count": 2}})", "",
      "rules.json");
}

Selected select(const Selection& selection) {
  return safeshuffle::select(selection, four_tensors(), two_stages());
}

std::string refusal(const Selection& selection) {
  return testing::failure<ConfigError>([&] { select(selection); }).cause;
}

}  // namespace

TEST_CASE("without patterns all tensors are selected", "[selection]") {
  CHECK(select({}) == Selected{true, true, true, true});
}

TEST_CASE("a tensor matches one of only, if there are any, and none of skip", "[selection]") {
  CHECK(select({{"layers.*"}, {}}) == Selected{true, true, true, false});
  CHECK(select({{"layers.0.*", "norm"}, {}}) == Selected{true, false, false, true});
  CHECK(select({{}, {"*.a"}}) == Selected{false, false, true, true});
  CHECK(select({{"layers.*"}, {"*.0.*", "*.b"}}) == Selected{false, true, false, false});
}

TEST_CASE("patterns are those of a shell", "[selection]") {
  CHECK(select({{"layers.[0-1].?"}, {}}) == Selected{true, true, true, false});
  CHECK(select({{"norm"}, {}}) == Selected{false, false, false, true});
}

TEST_CASE("a pattern without a match is refused, and a selection of nothing", "[selection]") {
  CHECK(refusal({{"layer.*"}, {}}) == "no tensor of the checkpoint matches 'layer.*'");
  CHECK(refusal({{"norm", "NORM"}, {}}) == "no tensor of the checkpoint matches 'NORM'");
  CHECK(refusal({{}, {"nor"}}) == "no tensor of the checkpoint matches 'nor'");
  CHECK(refusal({{"norm"}, {"n*"}}) == "no tensor is left to load");
}

TEST_CASE("a stage and patterns select what is in both", "[selection]") {
  CHECK(select({{}, {}, PipelineStage{0, 2}}) == Selected{true, false, false, false});
  CHECK(select({{}, {}, PipelineStage{1, 2}}) == Selected{false, true, true, true});
  CHECK(select({{"*.a"}, {}, PipelineStage{1, 2}}) == Selected{false, true, false, false});
  CHECK(select({{"layers.*"}, {"*.a"}, PipelineStage{1, 2}}) ==
        Selected{false, false, true, false});
  CHECK(refusal({{"norm"}, {}, PipelineStage{0, 2}}) == "no tensor is left to load");
  CHECK(refusal({{"nor"}, {}, PipelineStage{1, 2}}) == "no tensor of the checkpoint matches 'nor'");
}

TEST_CASE("what is left out by name needs no stage", "[selection]") {
  const TpPlan rules = TpPlan::from_json(
      R"({"tp_plan": {}, "pipeline": {"layers": "layers", "count": 2}})", "", "rules.json");
  const Catalog catalog = four_tensors();
  CHECK_THROWS_AS(safeshuffle::select({{}, {}, PipelineStage{1, 2}}, catalog, rules), PlanError);
  CHECK(safeshuffle::select({{}, {"norm"}, PipelineStage{1, 2}}, catalog, rules) ==
        Selected{false, true, true, false});
}

TEST_CASE("what is not selected is dropped, and need not be divisible", "[selection]") {
  const TpPlan rules = TpPlan::from_json(R"({"rules": [
      {"match": "layers.*.a", "dim": 0}, {"match": "layers.*.b", "dim": 0}]})",
                                         "", "rules.json");
  const Catalog catalog = four_tensors();
  CHECK_THROWS_AS(rules.place_all(catalog, 2), PlanError);
  const auto placements =
      rules.place_all(catalog, 2, safeshuffle::select({{}, {"*.b"}}, catalog, rules));
  CHECK(placements[0].kind == Placement::Kind::sharded);
  CHECK(placements[2].kind == Placement::Kind::dropped);
  CHECK(placements[3].kind == Placement::Kind::replicated);
}
