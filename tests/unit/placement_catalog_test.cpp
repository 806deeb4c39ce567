// placement: all tensors of a catalog at once.
#include <string>

#include "safeshuffle/error.hpp"
#include "safeshuffle/placement.hpp"

#include "support/catch.hpp"
#include "support/placement.hpp"

using namespace safeshuffle;
using testing::tensor;

namespace {

Catalog catalog_of(std::vector<TensorInfo> tensors) {
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
  return catalog_of(std::move(tensors));
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
    CHECK(shard_shape(info, placements[i], 1, 4) == testing::shard(plan, info, 1, 4));
  }
}

TEST_CASE("an error while placing a catalog names file and tensor", "[placement]") {
  const TpPlan plan = TpPlan::from_json(R"({"m": "colwise"})", "", "rules.json");
  try {
    plan.place_all(catalog_of({tensor("m.weight", {3, 2})}), 2);
    FAIL("no exception");
  } catch (const PlanError& error) {
    CHECK(error.record().file == "a.safetensors");
    CHECK(error.record().tensor == "m.weight");
  }
  CHECK_THROWS_AS(plan.place_all(catalog_of({}), 0), PlanError);
}
