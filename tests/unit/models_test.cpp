// placement: the built-in rules, on what was found when scripts/check-models compared them with
// transformers and with vLLM's loaders: types, names, shapes, and what each rank keeps.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "safeshuffle/error.hpp"
#include "safeshuffle/placement.hpp"

#include "placement/rule_set.hpp"
#include "support/catalogs.hpp"
#include "support/catch.hpp"

using namespace safeshuffle;
using nlohmann::json;

namespace {

using Boxes = std::vector<std::vector<Interval>>;  // by rank, along the axis

json records() {
  std::ifstream file(TEST_SOURCE_DIR "/tests/unit/models.json");
  return json::parse(file);
}

Catalog recorded_catalog(const json& model) {
  const auto dtypes = model.value("dtypes", std::map<std::string, std::string>());
  std::vector<testing::Made> made;
  for (const auto& [name, record] : model.at("tensors").items()) {
    const auto found = dtypes.find(name);
    const DType dtype = found == dtypes.end() ? DType::F32 : parse_dtype(found->second).value();
    made.push_back({name, dtype, record.at(0).get<Shape>()});
  }
  return testing::make_catalog({made});
}

/// A record is [shape], [shape, axis] if the axis is cut evenly, or [shape, axis, {"8": ...}] where
/// so many ranks do otherwise: the number of equal units that they share, or what each keeps, a
/// list of [begin, length].
Boxes recorded(const json& record, std::uint32_t world) {
  Boxes boxes(world);
  const std::string key = std::to_string(world);
  const std::uint64_t extent = record.at(0).at(record.at(1).get<std::size_t>());
  const json parts = record.size() == 3 ? record.at(2).value(key, json(world)) : json(world);
  const std::uint64_t units = parts.is_number() ? parts.get<std::uint64_t>() : 0;
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    if (units != 0) {
      boxes[rank] = {{extent / units * (rank * units / world), extent / units}};
      continue;
    }
    for (const json& interval : parts.at(rank)) {
      boxes[rank].push_back({interval.at(0), interval.at(1)});
    }
  }
  return boxes;
}

Boxes kept(const Placement& placement, const TensorInfo& tensor, std::uint32_t world) {
  Boxes boxes(world);
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    append_intervals(placement.split, tensor.shape[placement.split.axis], rank, world, boxes[rank]);
  }
  return boxes;
}

void check(const Placement& placement, const TensorInfo& tensor, const json& record,
           std::uint32_t world) {
  CAPTURE(tensor.name, world);
  const bool is_whole = record.size() == 1;
  if (is_whole || placement.kind != Placement::Kind::sharded) {
    CHECK(is_whole == (placement.kind == Placement::Kind::replicated));
    return;
  }
  CHECK(placement.split.axis == record.at(1));
  CHECK((kept(placement, tensor, world) == recorded(record, world)));
}

/// Calls `visit(record, catalog, rules)` for every recorded model.
template <class Visit>
void for_each_model(const Visit& visit) {
  const json all = records();
  for (const auto& [type, record] : all.items()) {
    CAPTURE(type);
    visit(record, recorded_catalog(record), TpPlan::automatic(record.at("config").dump()));
  }
}

bool is_of_experts(const TensorInfo& tensor) {
  return tensor.name.find(".experts.") != std::string::npos;
}

}  // namespace

TEST_CASE("every model type is cut as it was when compared with others", "[placement]") {
  for_each_model([](const json& record, const Catalog& catalog, const TpPlan& plan) {
    for (const std::uint32_t world : {2U, 4U, 8U}) {
      if (record.value("refused", json::object()).contains(std::to_string(world))) {
        CHECK_THROWS_AS(plan.place_all(catalog, world), PlanError);
        continue;
      }
      const std::vector<Placement> placements = plan.place_all(catalog, world);
      for (std::size_t i = 0; i < placements.size(); ++i) {
        const TensorInfo& tensor = catalog.tensors()[i];
        check(placements[i], tensor, record.at("tensors").at(tensor.name), world);
      }
      CHECK(plan.warnings(catalog, world).empty());
    }
  });
}

TEST_CASE("every layer, and all beside them, belongs to a pipeline stage", "[placement]") {
  for_each_model([](const json&, const Catalog& catalog, const TpPlan& plan) {
    const auto& pipeline = plan.rules().pipeline;
    if (!pipeline || !pipeline->layers) return;
    const std::vector<bool> first = plan.in_stage(catalog, {0, 2});
    const std::vector<bool> last = plan.in_stage(catalog, {1, 2});
    for (std::size_t i = 0; i < first.size(); ++i) CHECK((first[i] || last[i]));
  });
}

TEST_CASE("whole experts can be dealt to the ranks", "[placement]") {
  for_each_model([](const json& record, const Catalog& catalog, const TpPlan& plan) {
    if (std::ranges::none_of(catalog.tensors(), is_of_experts)) return;
    const std::vector<Placement> placements = plan.deal_experts().place_all(catalog, 2);
    if (record.at("config").contains("quantization_config")) return;  // has scalars
    for (std::size_t i = 0; i < placements.size(); ++i) {
      const TensorInfo& tensor = catalog.tensors()[i];
      if (!is_of_experts(tensor) || tensor.name.ends_with("e_score_correction_bias")) continue;
      CAPTURE(tensor.name);
      const bool is_one = tensor.name.find(".experts.0.") != std::string::npos;
      CHECK(placements[i].kind == (is_one ? Placement::Kind::single : Placement::Kind::sharded));
      if (!is_one) CHECK(placements[i].split.axis == 0);
    }
  });
}
