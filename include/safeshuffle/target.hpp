// Targets: the tensors that ranks end up with, and the stored tensors that fill them. Usually a
// target is a stored tensor under the same name; it may also be composed of several, of parts of
// them, and of zeros, and have several names. Plain data, pure; safe to share between threads.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "safeshuffle/metadata.hpp"
#include "safeshuffle/placement.hpp"
#include "safeshuffle/sharded_state.hpp"

namespace safeshuffle {

namespace plan {
struct RankParts;
}

/// Indices [source_begin, source_begin + length) of a stored tensor, along the axis of the
/// composition, which fill [target_begin, target_begin + length) of the target; or zeros.
struct Fill {
  /// Instead of a tensor: the target is zero here.
  static constexpr std::uint32_t zeros = std::numeric_limits<std::uint32_t>::max();

  std::uint32_t tensor = 0;  ///< index into Catalog::tensors()
  std::uint64_t source_begin = 0;
  std::uint64_t target_begin = 0;
  std::uint64_t length = 0;
  bool operator==(const Fill&) const = default;
};

/// A target that is not simply a stored tensor: stored tensors joined, or parted, along one axis.
struct Composition {
  std::string name;
  std::vector<std::string> aliases;  ///< more names of the same memory
  Shape shape;                       ///< of the whole target; it has at least one dimension
  std::uint32_t axis = 0;            ///< along which fills follow each other

  /// Ascending target_begin, without gaps or overlaps from 0 to shape[axis]. At least one is of a
  /// stored tensor. All stored tensors have the same type, and the target's shape but for `axis`.
  std::vector<Fill> fills;
};

/// One tensor to be loaded, and where it goes.
struct Target {
  std::uint32_t tensor = 0;  ///< index into Catalog::tensors(): the only, or a first, tensor of it
  Placement placement;

  /// Null: the target is `tensor` as it is stored.
  std::shared_ptr<const Composition> composition = nullptr;

  /// Null: the target is a whole tensor.
  std::shared_ptr<const SavedShard> saved_shard = nullptr;

  /// Null: placement and composition decide what each rank needs. Otherwise these do, the target is
  /// `tensor` as it is stored, and instead of an arena it fills memory that callers lend (see
  /// binding.hpp); of the placement, only the kind and `rank` count. For the library's own use.
  std::shared_ptr<const plan::RankParts> parts = nullptr;
};

/// One target for every stored tensor, as it is; `placements` in the order of the catalog.
std::vector<Target> stored_targets(std::vector<Placement> placements);

const std::string& name_of(const Target& target, const Catalog& catalog) noexcept;

/// Of the whole target, before placement.
const Shape& shape_of(const Target& target, const Catalog& catalog) noexcept;

/// Number of targets with one kind of placement, and their bytes in the type that is stored.
struct TargetCount {
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;
};

/// How the targets of a load are placed. Each counts once, however many ranks hold it. In a group
/// of one rank, none is partitioned; of a sharded state that is loaded as it was saved, every
/// rank's tensors are single.
struct PlacementSummary {
  TargetCount partitioned;  ///< split into shards
  TargetCount replicated;   ///< whole on every rank
  TargetCount single;       ///< whole on one rank
  TargetCount dropped;      ///< on no rank
};

PlacementSummary summarize(const Catalog& catalog, const std::vector<Target>& targets);

}  // namespace safeshuffle
