// Placement: where each tensor of a checkpoint must end up in a tensor-parallel group.
//
// A `TpPlan` is a set of rules over tensor names (Hugging Face's `tp_plan` vocabulary and this
// project's extensions; docs/placement.md). Applied to one tensor it gives a `Placement`, which is
// plain data and independent of the rank. Pure: no I/O, no clock; everything here is safe to share
// between threads once built.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "safeshuffle/metadata.hpp"

namespace safeshuffle {

/// Consecutive indices [begin, begin + length) along one axis of a tensor.
struct Interval {
  std::uint64_t begin = 0;
  std::uint64_t length = 0;
  bool operator==(const Interval&) const = default;
};

/// How `units` equal pieces are shared by the ranks of a group of size `world`:
///  - `units % world == 0`: consecutive units, the same number each;
///  - else if `replicate` and `world % units == 0`: rank r holds unit r / (world / units), together
///    with the other ranks of its sub-group of world / units ranks (KV heads);
///  - else if `uneven`: consecutive units, ceil(units / world) each, the last ranks short or empty;
///  - else the tensor cannot be placed: PlanError.
struct Sharing {
  std::uint64_t units = 1;
  bool uneven = false;
  bool replicate = false;
  bool operator==(const Sharing&) const = default;
};

/// One of several fused pieces inside a unit, such as the q, k and v rows of a fused projection.
struct Part {
  std::uint64_t length = 0;  ///< extent along the axis, in elements
  Sharing sharing;           ///< how this part is shared by the ranks that share the unit
  bool operator==(const Part&) const = default;
};

/// A cut of a tensor along one axis. The axis is `sharing.units` equal units. A rank that has whole
/// units to itself keeps them whole. Where a unit is shared by a sub-group (`sharing.replicate`),
/// each part is cut among that sub-group and what one rank keeps is joined in storage order;
/// without parts all of the sub-group keep the whole unit. A fused tensor is one unit, replicated,
/// of parts.
struct Split {
  std::uint32_t axis = 0;  ///< index into the shape
  Sharing sharing;
  std::vector<Part> parts;  ///< lengths add up to one unit's; empty: the unit is not divisible
  bool operator==(const Split&) const = default;
};

/// Where one tensor must end up.
struct Placement {
  enum class Kind : std::uint8_t {
    replicated,  ///< whole on every rank
    sharded,     ///< cut by `split`
    single,      ///< whole on `rank` only
    dropped,     ///< on no rank; never read
  };
  Kind kind = Kind::replicated;
  Split split;             ///< meaningful if sharded
  std::uint32_t rank = 0;  ///< meaningful if single
  bool operator==(const Placement&) const = default;
};

/// Whether `rank` has the tensor at all, be it as an empty shard.
bool holds(const Placement& placement, std::uint32_t rank) noexcept;

/// What `rank` of `world` keeps along `split.axis` of an axis of `extent` elements: disjoint,
/// ascending, non-empty intervals, joined in this order. Appended to `out`, which is not cleared.
/// Throws PlanError if the axis cannot be shared so (see Sharing).
void append_intervals(const Split& split, std::uint64_t extent, std::uint32_t rank,
                      std::uint32_t world, std::vector<Interval>& out);

/// The shape that `rank` of `world` holds of a tensor; the cut extent may be 0. Precondition:
/// `holds(placement, rank)`.
Shape shard_shape(const TensorInfo& tensor, const Placement& placement, std::uint32_t rank,
                  std::uint32_t world);

/// Tensors that are placed in one way, and their bytes as stored.
struct TensorCount {
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;
};

/// How the tensors of a checkpoint are placed; each counts once, however many ranks hold it. In a
/// group of one rank, what would be partitioned is whole.
struct PlacementSummary {
  TensorCount partitioned;  ///< cut into shards
  TensorCount replicated;   ///< whole on every rank
  TensorCount single;       ///< whole on one rank
  TensorCount dropped;      ///< on no rank
};

/// `placements` in the order of `catalog.tensors()`, one for each.
PlacementSummary summarize(const Catalog& catalog, const std::vector<Placement>& placements);

/// Rules that give every tensor its placement.
class TpPlan {
 public:
  /// Parses a rule file: an object with `tp_plan` and/or `rules` (docs/placement.md), a bare
  /// `tp_plan` object as it is in Hugging Face code, or a config.json that has one.
  /// `config_json` (may be empty) supplies the numbers that rules name, such as head counts.
  /// Throws ConfigError naming the key at fault; `origin` is the file name used in messages.
  static TpPlan from_json(std::string_view rules_json, std::string_view config_json,
                          std::string_view origin);

  /// The built-in rules for the `model_type` of a config.json. Throws ConfigError if the type is
  /// absent or has no built-in rules, listing those that do.
  static TpPlan automatic(std::string_view config_json);

  /// Everything on every rank.
  static TpPlan replicate_all();

  /// The rules as the text of a rule file, without a newline at its end: `from_json`, given it and
  /// the same `config_json`, makes the same TpPlan. To be saved and edited, be they built-in ones,
  /// a bare `tp_plan` or that of a config.json.
  std::string to_json() const;

  /// Where `tensor` goes in a group of `world` ranks. Validates that it can be placed: throws
  /// PlanError naming the tensor, the axis and the sizes if not, or if the rules say that an
  /// unmatched tensor is an error.
  Placement place(const TensorInfo& tensor, std::uint32_t world) const;

  /// `place` for every tensor of a catalog, in its order. The catalog must be of a whole
  /// checkpoint: throws ConfigError if a key of the rules is about none of its tensors and is not
  /// marked as optional (docs/placement.md), which is how mistyped keys and rules of another model
  /// show.
  std::vector<Placement> place_all(const Catalog& catalog, std::uint32_t world) const;

 private:
  struct Rules;
  explicit TpPlan(std::shared_ptr<const Rules> rules);
  std::shared_ptr<const Rules> rules_;
};

}  // namespace safeshuffle
