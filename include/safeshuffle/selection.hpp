// Which tensors of a checkpoint are loaded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "safeshuffle/metadata.hpp"

namespace safeshuffle {

class TpPlan;

/// One stage of a pipeline, which holds some of the layers of a model.
struct PipelineStage {
  std::uint32_t index = 0;  ///< counted from 0
  std::uint32_t count = 1;  ///< number of stages
  bool operator==(const PipelineStage&) const = default;
};

/// Tensors by name and by pipeline stage; a tensor must be in both selections. Patterns of names
/// are as a shell has them for files: `*` stands for any characters, dots included, `?` for one,
/// `[a-c]` for one of several, and `\` takes the meaning from the character that follows. Case
/// matters.
struct Selection {
  std::vector<std::string> only;  ///< tensors must match one of these; empty: all do
  std::vector<std::string> skip;  ///< tensors that match one of these are left out

  /// Tensors must belong to this stage; none: those of all stages.
  std::optional<PipelineStage> stage = std::nullopt;
};

/// Whether each tensor of the catalog, in its order, is selected, as it is stored: what rules
/// compose is selected by `select_targets` (loader.hpp), by the names of the result. `rules` say
/// which tensors a stage has; without one, they do not matter. Throws ConfigError if a pattern
/// matches no tensor, or if no tensor is left; and as TpPlan::in_stage.
std::vector<bool> select(const Selection& selection, const Catalog& catalog, const TpPlan& rules);

}  // namespace safeshuffle
