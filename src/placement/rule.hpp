// A rule ready to be applied: every number is resolved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/placement.hpp"

#include "placement/quantised.hpp"
#include "placement/vocabulary.hpp"

namespace safeshuffle::placement {

/// As many units as there are elements, so that the axis can be split anywhere.
inline constexpr std::uint64_t per_element = 0;

/// One of the fused parts of a unit.
struct PartRule {
  std::uint64_t size = 1;  ///< relative to the other parts
  Sharing sharing;         ///< `units` may be `per_element`
};

/// A split along one axis.
struct CutRule {
  Dim weight;
  Dim bias;             ///< of tensors named `bias` or with one dimension
  bool strict = false;  ///< a tensor without that dimension is an error instead of replicated
  Sharing sharing;      ///< `units` may be `per_element`
  std::vector<PartRule> parts;
  bool covering = false;  ///< scales: Packing::covering

  /// If given: a weight whose cut axis has so many elements, and whose other one of the last two
  /// has not, is stored transposed, and is cut along that one.
  std::optional<std::uint64_t> uncut = std::nullopt;
};

/// The whole tensor, on every rank (replicated), on one (single) or on none (dropped).
struct Keep {
  Placement::Kind kind = Placement::Kind::replicated;
  std::uint32_t rank = 0;
  bool by_place = false;  ///< by a rule with `place`, not by a style
};

/// Whole experts, dealt to the ranks in order, the same number to each.
struct DealRule {
  std::optional<std::uint64_t> experts;  ///< how many there are; none: unknown
  bool uneven = false;  ///< allowed: ceil(experts / world) each, fewer or none for the last
};

/// A rule with a count that config.json does not give: an error as soon as it applies to a tensor.
struct Refusal {
  ErrorRecord reason;  ///< of the ConfigError
};

using Rule = std::variant<Keep, CutRule, DealRule, Refusal>;

/// ErrorRecord::code of a PlanError that depends on the number of ranks.
inline constexpr std::int32_t other_worlds_may_work = 1;

/// The axis that `dim` means in a tensor of `rank` dimensions; none if it has no such axis.
std::optional<std::uint32_t> resolve_axis(Dim dim, std::size_t rank);

/// Applies `rule` to `tensor` in a group of `world` ranks. `below` is the part of the tensor's name
/// after the rule's key. Throws PlanError, or ConfigError if a count is needed but unknown, naming
/// the tensor.
Placement apply(const Rule& rule, const TensorInfo& tensor, std::string_view below,
                std::uint32_t world);

/// The same placement, if it does not part `together` consecutive elements of the axis. Throws
/// PlanError.
Placement keep_together(Placement placement, const TensorInfo& tensor, std::uint64_t together,
                        std::uint32_t world);

/// Applies a split of a layer's weight to a tensor of that layer, which is quantised. Throws
/// PlanError.
Placement apply(const CutRule& cut, const TensorInfo& tensor, const StoredForm& form,
                std::uint32_t world);

}  // namespace safeshuffle::placement
