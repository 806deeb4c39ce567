#include "pipeline/targets.hpp"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/selection.hpp"

#include "core/text.hpp"
#include "placement/join_shards.hpp"

namespace safeshuffle {
namespace {

// Needs memory for the files that there are, not for the ranks that a file speaks of.
void check_complete(const Checkpoint& checkpoint) {
  const ShardedState& state = *checkpoint.sharded_state;
  const std::set<std::uint32_t> present(state.rank_of_file.begin(), state.rank_of_file.end());
  const std::size_t missing = state.world - present.size();
  if (missing == 0) return;
  std::vector<std::string> first;
  for (std::uint32_t rank = 0; first.size() < std::min(missing, core::most_enumerated); ++rank) {
    if (!present.contains(rank)) first.push_back(std::to_string(rank));
  }
  throw IoError(ErrorRecord{.file = checkpoint.catalog.files().front().path,
                            .cause = "it was saved by one of " + std::to_string(state.world) +
                                     " ranks, but there are no files of " +
                                     (missing == 1 ? "rank " : "ranks ") +
                                     core::enumerate(first, missing)});
}

[[noreturn]] void fail_unrecorded(const Checkpoint& checkpoint, const Options& options,
                                  std::uint32_t world) {
  const std::uint32_t saved = checkpoint.sharded_state->world;
  const bool same = world == saved;
  throw PlanError(ErrorRecord{
      .file = checkpoint.catalog.files().front().path,
      .cause = "it was saved by a group of " + std::to_string(saved) +
               " ranks without a record of what each shard is, so it can be loaded as it was saved "
               "only: " +
               (same ? "not with a rule file, stages or experts (tp_plan " + options.tp_plan + ")"
                     : "by " + std::to_string(saved) + " ranks, not " + std::to_string(world))});
}

std::vector<Target> drop(std::vector<Target> targets, const std::vector<bool>& selected) {
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (!selected[i]) targets[i].placement = {Placement::Kind::dropped, {}};
  }
  return targets;
}

std::vector<Target> joined_targets(const Checkpoint& checkpoint, const TpPlan& rules,
                                   const Options& options, std::uint32_t world) {
  const ShardedState& state = *checkpoint.sharded_state;
  placement::JoinedShards joined = placement::join_shards(checkpoint.catalog, state);
  std::vector<Placement> placements = rules.place_all(
      joined.whole, world, select(options.selection, joined.whole, rules), TpPlan::Extent::part);
  for (std::size_t i = 0; i < placements.size(); ++i) {
    joined.targets[i].placement = std::move(placements[i]);
  }
  if (world != state.world) return std::move(joined.targets);
  return placement::prefer_saved(std::move(joined.targets), checkpoint.catalog, state);
}

}  // namespace

bool pipeline::loads_as_saved(const Options& options, const Checkpoint& checkpoint,
                              std::uint32_t world) {
  return checkpoint.sharded_state && checkpoint.sharded_state->world == world &&
         options.tp_plan == "auto" && !options.selection.stage &&
         options.experts == ExpertPlacement::cut;
}

void pipeline::check_sharded_state(const Options& options, const Checkpoint& checkpoint,
                                   std::uint32_t world) {
  if (!checkpoint.sharded_state) return;
  check_complete(checkpoint);
  if (checkpoint.sharded_state->recorded || loads_as_saved(options, checkpoint, world)) return;
  fail_unrecorded(checkpoint, options, world);
}

std::vector<Target> select_targets(const Checkpoint& checkpoint, const TpPlan& rules,
                                   const Options& options, std::uint32_t world) {
  const Catalog& catalog = checkpoint.catalog;
  if (!checkpoint.sharded_state) {
    return stored_targets(
        rules.place_all(catalog, world, select(options.selection, catalog, rules)));
  }
  pipeline::check_sharded_state(options, checkpoint, world);
  if (!pipeline::loads_as_saved(options, checkpoint, world)) {
    return joined_targets(checkpoint, rules, options, world);
  }
  return drop(placement::targets_as_saved(catalog, *checkpoint.sharded_state),
              select(options.selection, catalog, rules));
}

}  // namespace safeshuffle
