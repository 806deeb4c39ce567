// From the shards of a sharded state to the tensors that were sharded.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "safeshuffle/sharded_state.hpp"
#include "safeshuffle/target.hpp"

namespace safeshuffle::placement {

/// What `rank` of `world`, which holds the target, has of it; none if all.
std::optional<SavedShard> shard_of(const Target& target, const Catalog& catalog, std::uint32_t rank,
                                   std::uint32_t world);

/// The tensors that a sharded state has shards of.
struct JoinedShards {
  Catalog whole;                ///< with the shapes of whole tensors, in the file of a first shard
  std::vector<Target> targets;  ///< by tensor of `whole`: how it is filled; not placed yet
};

/// Requires the files of all ranks, and their records. Of shards that several ranks have, and of
/// tensors that all have, one copy is used, from different ranks in turn. Throws FormatError naming
/// file and tensor if shards of one name do not fit together.
JoinedShards join_shards(const Catalog& catalog, const ShardedState& state);

/// Every tensor on the rank that saved it.
std::vector<Target> targets_as_saved(const Catalog& catalog, const ShardedState& state);

}  // namespace safeshuffle::placement
