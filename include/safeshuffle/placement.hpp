// Placement: where each tensor of a checkpoint ends up in a tensor-parallel group.
//
// A `TpPlan` is a set of rules over tensor names (Hugging Face's `tp_plan` vocabulary and this
// project's extensions; docs/placement.md). Applied to a tensor, it gives a `Placement`, which is
// plain data and independent of the rank. Pure: no I/O, no clock; everything here is safe to share
// between threads once constructed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "safeshuffle/metadata.hpp"
#include "safeshuffle/selection.hpp"

namespace safeshuffle {

struct Target;

namespace placement {
struct RuleSet;
}

/// How `units` equal units are distributed over the ranks of a group of size `world`:
///  - `units % world == 0`: consecutive units, the same number for each rank;
///  - else if `replicate` and `world % units == 0`: rank r holds unit r / (world / units), together
///    with the other ranks of its sub-group of world / units ranks (KV heads);
///  - else if `uneven`: consecutive units, ceil(units / world) each, fewer or none for the last;
///  - else the tensor cannot be placed: PlanError.
struct Sharing {
  std::uint64_t units = 1;
  bool uneven = false;
  bool replicate = false;
  bool operator==(const Sharing&) const = default;
};

/// One of several fused parts of a unit, such as the q, k and v rows of a fused projection.
struct Part {
  std::uint64_t length = 0;  ///< extent along the axis, in elements
  Sharing sharing;           ///< how this part is distributed over the ranks that share the unit
  bool operator==(const Part&) const = default;
};

/// What an axis of a tensor of a quantised layer counts: along it, the layer's weight has `extent`
/// elements, and each `values` of them are in `stored` elements of the axis, the last ones in as
/// many as they need. A block of values is never parted: PlanError, or, if `covering`, a rank keeps
/// every block of which it has a part, and ranks may share blocks.
struct Packing {
  std::uint64_t extent = 0;  ///< 0: the axis counts for itself
  std::uint64_t values = 1;
  std::uint64_t stored = 1;
  bool covering = false;
  bool operator==(const Packing&) const = default;
};

/// Splits a tensor along one axis, which consists of `sharing.units` equal units. A rank that does
/// not share its units keeps them whole. If a sub-group shares a unit (`sharing.replicate`), each
/// part is split among that sub-group and a rank's slices are concatenated in storage order;
/// without parts, every rank of the sub-group keeps the whole unit. A fused tensor is one
/// replicated unit with parts.
struct Split {
  std::uint32_t axis = 0;  ///< index into the shape
  Sharing sharing;
  std::vector<Part> parts;  ///< lengths add up to that of a unit; empty: a unit is not split
  Packing packing = {};     ///< what `sharing` and `parts` count, if not the axis itself
  bool operator==(const Split&) const = default;
};

/// Where one tensor ends up.
struct Placement {
  enum class Kind : std::uint8_t {
    replicated,  ///< whole on every rank
    sharded,     ///< split according to `split`
    single,      ///< whole on `rank` only
    dropped,     ///< on no rank; never read
  };
  Kind kind = Kind::replicated;
  Split split;             ///< meaningful if sharded
  std::uint32_t rank = 0;  ///< meaningful if single
  bool operator==(const Placement&) const = default;
};

/// Whether `rank` has the tensor, possibly as an empty shard.
bool holds(const Placement& placement, std::uint32_t rank) noexcept;

/// Appends to `out` what `rank` of `world` keeps along `split.axis`, which has `extent` elements:
/// disjoint, ascending, non-empty intervals, to be concatenated in this order. Throws PlanError if
/// the axis cannot be split this way (see Sharing).
void append_intervals(const Split& split, std::uint64_t extent, std::uint32_t rank,
                      std::uint32_t world, std::vector<Interval>& out);

/// The shape of the shard of `rank` of a tensor of this `shape`; the extent of the split axis may
/// be 0. Precondition: `holds(placement, rank)`.
Shape shard_shape(Shape shape, const Placement& placement, std::uint32_t rank, std::uint32_t world);

/// Rules that determine the placement of every tensor. Only `select_targets` (loader.hpp) also
/// composes the tensors that the section `compose` asks for; the functions here are about tensors
/// as they are stored.
class TpPlan {
 public:
  /// Parses a rule file: an object with `tp_plan` and/or `rules` (docs/placement.md), or a
  /// bare `tp_plan` object as in Hugging Face code. `config_json` (may be empty) supplies the
  /// numbers that rules refer to, such as head counts. Throws ConfigError naming the invalid key;
  /// `origin` is the file name used in messages.
  static TpPlan from_json(std::string_view rules_json, std::string_view config_json,
                          std::string_view origin);

  /// The built-in rules for the `model_type` of a config.json. If the type is absent or has no
  /// built-in rules, throws ConfigError.
  static TpPlan automatic(std::string_view config_json);

  /// Likewise, but a type without rules gets those that know the names of all tensors of the
  /// catalog, and `warnings` says so. If there are none, or several, the ConfigError names the
  /// nearest and the first names that it does not know.
  static TpPlan automatic(std::string_view config_json, const Catalog& catalog);

  /// Every tensor on every rank.
  static TpPlan replicate_all();

  /// The same rules, but with the tensors of experts placed as expert parallelism needs them: every
  /// rank gets whole experts, consecutive and the same number of them. Throws ConfigError if the
  /// rules do not say which tensors are experts (docs/placement.md). To place tensors that do not
  /// divide this way is a PlanError, unless the rules allow it.
  TpPlan deal_experts() const;

  /// The rules as the text of a rule file, without a final newline, to save and edit. `from_json`
  /// with this text and the same `config_json` makes the same TpPlan, except for the effect of
  /// `deal_experts`. Works for built-in rules and a bare `tp_plan` as well.
  std::string to_json() const;

  /// The placement of `tensor` in a group of `world` ranks. Throws PlanError, naming the tensor,
  /// the axis and the sizes, if it cannot be placed, or if it matches no rule and the rules make
  /// that an error.
  Placement place(const TensorInfo& tensor, std::uint32_t world) const;

  /// `place` for every tensor of a catalog, in its order. Those that are not `selected` (by index;
  /// empty: all are) are dropped, whatever the rules say. The catalog must be that of a whole
  /// checkpoint: throws ConfigError if a key of the rules matches none of its tensors and is not
  /// marked as optional (docs/placement.md). This detects mistyped keys and rules for another
  /// model. That of `part` of one may lack tensors, as what was loaded and saved again does.
  enum class Extent : std::uint8_t { whole, part };
  std::vector<Placement> place_all(const Catalog& catalog, std::uint32_t world,
                                   const std::vector<bool>& selected = {},
                                   Extent extent = Extent::whole) const;

  /// What may not be meant, one sentence each: keys of a plan that match none of a whole
  /// checkpoint's tensors, or the same as others; and weights that no rule splits, if they are much
  /// of what each of several ranks holds.
  std::vector<std::string> warnings(const Catalog& catalog, std::uint32_t world) const;

  /// Stored bytes of replicated tensors for which the same key of the rules decided.
  struct Whole {
    std::string key;  ///< as in the rules; empty: no key matches
    std::uint64_t bytes = 0;
  };

  /// Why some of the targets that these rules made of a catalog are replicated; most bytes first.
  std::vector<Whole> whole(const Catalog& catalog, const std::vector<Target>& targets) const;

  /// Whether each tensor of a catalog, in its order, belongs to a stage of a pipeline. Those that
  /// are not `selected` (as for `place_all`) do not, whatever the rules say. The embedding, or an
  /// output head that replaces it, belongs to both the first and the last stage if they share it.
  /// Throws ConfigError if there is no such stage, there are more stages than layers, or the rules
  /// do not say which modules belong to which stage (docs/placement.md); PlanError naming a
  /// selected tensor that belongs to none.
  std::vector<bool> in_stage(const Catalog& catalog, PipelineStage stage,
                             const std::vector<bool>& selected = {}) const;

  /// For the library's own use.
  const placement::RuleSet& rules() const noexcept;

 private:
  struct Rules;
  explicit TpPlan(std::shared_ptr<const Rules> rules);
  std::shared_ptr<const Rules> rules_;
};

}  // namespace safeshuffle
