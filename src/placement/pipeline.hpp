// Which tensors a stage of a pipeline needs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "safeshuffle/metadata.hpp"
#include "safeshuffle/placement.hpp"

#include "placement/json_object.hpp"
#include "placement/matcher.hpp"
#include "placement/quantities.hpp"
#include "placement/rule_parser.hpp"

namespace safeshuffle::placement {

/// A part of the model.
enum class Role : std::uint8_t { embedding, first, layers, last, head };

/// The fields of the section `pipeline` that list modules, in the order in which data passes
/// through them.
inline constexpr std::array<std::pair<std::string_view, Role>, 5> pipeline_fields{
    {{"embedding", Role::embedding},
     {"first", Role::first},
     {"layers", Role::layers},
     {"last", Role::last},
     {"head", Role::head}}};

/// Immutable once made.
struct Pipeline {
  struct Module {
    std::string key;
    Role role;
  };
  std::vector<Module> modules;
  Matcher matcher{{}};                          ///< name → index into `modules`
  std::optional<std::uint64_t> layers;          ///< how many there are; none: unknown
  std::vector<std::uint64_t> layers_per_stage;  ///< empty: any number of stages, dealt evenly
  std::optional<bool> tied;  ///< whether the head is the embedding, if config.json says
};

/// The section `pipeline` of a rule file. `prefixes` are those of base models, see Matcher. Throws
/// ConfigError.
Pipeline parse_pipeline(const JsonObject& section, const RuleParser& parser,
                        const Quantities& quantities, std::vector<std::string> prefixes);

/// TpPlan::in_stage. `document` is the file with the section.
std::vector<bool> in_stage(const Pipeline& pipeline, const Document& document,
                           const Catalog& catalog, PipelineStage stage,
                           const std::vector<bool>& selected);

}  // namespace safeshuffle::placement
