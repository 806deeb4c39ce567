#include "placement/pipeline.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "safeshuffle/error.hpp"

#include "core/text.hpp"

namespace safeshuffle::placement {
namespace {

/// Where a tensor is in the model.
struct Position {
  Role role = Role::layers;
  std::uint64_t layer = 0;  ///< its number, if it belongs to one
};

/// The layers of a stage: layers / stages each; if there is a remainder, the stages before the last
/// one take one more each.
Interval dealt_layers(std::uint64_t layers, PipelineStage stage) {
  const std::uint64_t each = layers / stage.count;
  const std::uint64_t larger = layers % stage.count;
  // Stages [first, count - 1) are larger; `larger` is less than `count`.
  const std::uint64_t first = stage.count - 1 - larger;
  const std::uint64_t before = stage.index > first ? std::min(stage.index - first, larger) : 0;
  const bool is_larger = stage.index >= first && stage.index + 1 < stage.count;
  return {stage.index * each + before, each + (is_larger ? 1 : 0)};
}

Interval listed_layers(const std::vector<std::uint64_t>& counts, std::uint32_t index) {
  const auto own = counts.begin() + index;
  return {std::accumulate(counts.begin(), own, std::uint64_t{0}), *own};
}

void check_stage(PipelineStage stage) {
  if (stage.index < stage.count) return;
  throw ConfigError("there is no pipeline stage " + std::to_string(stage.index) +
                    ", counted from 0, of " + core::plural(stage.count, "stage"));
}

Interval layers_of(const Pipeline& pipeline, const Document& document, PipelineStage stage) {
  const std::vector<std::uint64_t>& counts = pipeline.layers_per_stage;
  if (!counts.empty()) {
    if (counts.size() == stage.count) return listed_layers(counts, stage.index);
    fail_config(
        document, "pipeline.layers_per_stage",
        "is for " + core::plural(counts.size(), "stage") + ", not " + std::to_string(stage.count));
  }
  if (!pipeline.layers) {
    fail_config(document, "pipeline",
                "config.json does not give the number of layers (num_hidden_layers, n_layer or "
                "num_layers); write it as \"count\" in this section");
  }
  if (stage.count > *pipeline.layers) {
    throw ConfigError(core::plural(*pipeline.layers, "layer") + " cannot be dealt to " +
                      core::plural(stage.count, "pipeline stage"));
  }
  return dealt_layers(*pipeline.layers, stage);
}

/// None if no module of the pipeline matches, or if the name of a layer's tensor has no number.
std::optional<Position> position_of(const Pipeline& pipeline, std::string_view name,
                                    std::vector<bool>& covering) {
  const auto index = pipeline.matcher.find(name, covering);
  if (!index) return std::nullopt;
  const auto& [key, role] = pipeline.modules[*index];
  if (role != Role::layers) return Position{role};
  const auto layer = leading_number(pipeline.matcher.below(key, name));
  return layer ? std::optional(Position{role, *layer}) : std::nullopt;
}

std::vector<std::optional<Position>> positions_of(const Pipeline& pipeline,
                                                  const Catalog& catalog) {
  std::vector<std::optional<Position>> positions;
  positions.reserve(catalog.tensors().size());
  std::vector<bool> covering(pipeline.modules.size());
  for (const TensorInfo& tensor : catalog.tensors()) {
    positions.push_back(position_of(pipeline, tensor.name, covering));
  }
  return positions;
}

[[noreturn]] void fail_tensor(const Catalog& catalog, const TensorInfo& tensor,
                              const std::string& cause) {
  throw PlanError(ErrorRecord{
      .file = catalog.files()[tensor.file].path, .tensor = tensor.name, .cause = cause});
}

std::string without_position(const Document& document) {
  return "belongs to no pipeline stage: no module in the section \"pipeline\" of " + document.name +
         " matches it; leave it out (--skip), or add its module to \"first\" or \"last\" there";
}

/// What one stage has of the model.
class Stage {
 public:
  Stage(const Pipeline& pipeline, const Document& document, PipelineStage stage,
        const std::vector<std::optional<Position>>& positions)
      : layers_(layers_of(pipeline, document, stage)),
        is_first_(stage.index == 0),
        is_last_(stage.index + 1 == stage.count) {
    const bool embedding = any_has(positions, Role::embedding);
    const bool head = any_has(positions, Role::head);
    // A checkpoint with only one of them must use it for both.
    const bool tied = pipeline.tied.value_or(embedding != head);
    embeds_ = is_first_ || (tied && is_last_);
    heads_ = is_last_ || (tied && is_first_ && !embedding);
  }

  bool has(const Position& position) const {
    switch (position.role) {
      case Role::embedding:
        return embeds_;
      case Role::first:
        return is_first_;
      case Role::last:
        return is_last_;
      case Role::head:
        return heads_;
      case Role::layers:
        break;
    }
    return position.layer >= layers_.begin && position.layer - layers_.begin < layers_.length;
  }

 private:
  static bool any_has(const std::vector<std::optional<Position>>& positions, Role role) {
    return std::ranges::any_of(positions, [role](const std::optional<Position>& position) {
      return position && position->role == role;
    });
  }

  Interval layers_;
  bool is_first_;
  bool is_last_;
  bool embeds_ = false;
  bool heads_ = false;
};

/// Its position; throws if it has none in a model of so many layers.
const Position& checked(const std::optional<Position>& position, const Pipeline& pipeline,
                        const Document& document, const Catalog& catalog,
                        const TensorInfo& tensor) {
  if (!position) fail_tensor(catalog, tensor, without_position(document));
  if (position->role == Role::layers && position->layer >= *pipeline.layers) {
    fail_tensor(catalog, tensor,
                "belongs to layer " + std::to_string(position->layer) +
                    ", counted from 0, but the pipeline has " +
                    core::plural(*pipeline.layers, "layer") +
                    "; leave it out (--skip), or change \"count\"");
  }
  return *position;
}

}  // namespace

std::vector<bool> in_stage(const Pipeline& pipeline, const Document& document,
                           const Catalog& catalog, PipelineStage stage,
                           const std::vector<bool>& selected) {
  check_stage(stage);
  const auto positions = positions_of(pipeline, catalog);
  const Stage wanted(pipeline, document, stage, positions);
  std::vector<bool> result(positions.size());
  for (std::size_t i = 0; i < positions.size(); ++i) {
    if (!selected.empty() && !selected.at(i)) continue;
    result[i] =
        wanted.has(checked(positions[i], pipeline, document, catalog, catalog.tensors()[i]));
  }
  return result;
}

}  // namespace safeshuffle::placement
