// Sharded state: a checkpoint with files of its own for each rank of the group that saved it, as
// `save_sharded` and vLLM's sharded_state loader write it:
// model-rank-{rank}-part-{part}.safetensors. Every rank's files have its shards, under the names of
// the whole tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "safeshuffle/metadata.hpp"

namespace safeshuffle {

/// What of a larger tensor a stored tensor is, according to the file that another group saved.
struct SavedShard {
  Shape shape;  ///< of the whole tensor; empty: the file does not say
  std::uint32_t axis = 0;
  std::vector<Interval> intervals;  ///< of `axis`, ascending; their lengths add up to the extent
  bool operator==(const SavedShard&) const = default;
};

/// What is known of a sharded state besides its catalog.
struct ShardedState {
  std::uint32_t world = 0;                  ///< size of the group that saved it
  std::vector<std::uint32_t> rank_of_file;  ///< by file: the rank that saved it

  /// Whether the files say what each shard is; `save_sharded` records that, others do not. Without,
  /// they can only be loaded by a group of the same size.
  bool recorded = false;

  /// By tensor: null for a whole tensor; all null if nothing is recorded.
  std::vector<std::shared_ptr<const SavedShard>> shards;
};

}  // namespace safeshuffle
