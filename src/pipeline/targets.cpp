#include "pipeline/targets.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/selection.hpp"

#include "core/text.hpp"
#include "pipeline/selection.hpp"
#include "placement/composed_targets.hpp"
#include "placement/join_shards.hpp"

namespace safeshuffle {
namespace {

using placement::Recipe;

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

[[noreturn]] void fail_unrecorded(const Checkpoint& checkpoint, std::uint32_t world) {
  const std::uint32_t saved = checkpoint.sharded_state->world;
  const bool same = world == saved;
  throw PlanError(ErrorRecord{
      .file = checkpoint.catalog.files().front().path,
      .cause = "it was saved by a group of " + std::to_string(saved) +
               " ranks without a record of what each shard is, so it can only be loaded as it was "
               "saved: " +
               (same ? "with tp_plan auto, and without a pipeline stage and parallel experts"
                     : "by " + std::to_string(saved) + " ranks, not " + std::to_string(world))});
}

std::vector<Target> drop(std::vector<Target> targets, const std::vector<bool>& selected) {
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (!selected[i]) targets[i].placement = {Placement::Kind::dropped, {}};
  }
  return targets;
}

// `names`: that patterns may match as well. A recipe is selected by any of its names, and for a
// stage if that has one of the tensors it uses.
std::vector<bool> select_recipes(const std::vector<Recipe>& recipes, const Catalog& catalog,
                                 const TpPlan& rules, const Selection& selection,
                                 std::vector<pipeline::ItemName> names) {
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    names.push_back({&recipes[i].composition.name, i});
    for (const std::string& alias : recipes[i].composition.aliases) names.push_back({&alias, i});
  }
  const auto in_stage = [&](std::vector<bool> selected) {
    std::vector<bool> used(catalog.tensors().size());
    for (std::size_t i = 0; i < recipes.size(); ++i) {
      for (const std::uint32_t tensor : recipes[i].uses) used[tensor] = used[tensor] || selected[i];
    }
    used = rules.in_stage(catalog, *selection.stage, used);
    for (std::size_t i = 0; i < recipes.size(); ++i) {
      selected[i] = selected[i] && std::ranges::any_of(recipes[i].uses, [&](std::uint32_t tensor) {
                      return used[tensor];
                    });
    }
    return selected;
  };
  return pipeline::select_items(selection, names, recipes.size(), in_stage);
}

std::vector<Target> place(std::vector<Target> targets, std::vector<Placement> placements) {
  for (std::size_t i = 0; i < placements.size(); ++i) {
    targets[i].placement = std::move(placements[i]);
  }
  return targets;
}

// What the rules make of the tensors of a catalog, which are filled as `tensors` say.
std::vector<Target> composed_targets(const Catalog& catalog, const std::vector<Alias>& aliases,
                                     const std::vector<Target>& tensors, const TpPlan& rules,
                                     const Selection& selection,
                                     std::vector<pipeline::ItemName> others, std::uint32_t world,
                                     TpPlan::Extent extent) {
  const std::vector<Recipe> recipes = placement::compose(rules.rules(), catalog, extent, aliases);
  const std::vector<bool> selected =
      select_recipes(recipes, catalog, rules, selection, std::move(others));
  std::vector<Target> targets =
      place(placement::fill_recipes(recipes, catalog, tensors),
            placement::place_recipes(rules, catalog, recipes, world, selected, extent));
  return placement::unite_aliases(std::move(targets), catalog, aliases);
}

bool composes(const TpPlan& rules) {
  return rules.rules().compose.has_value();
}

std::vector<Target> plain_targets(const Checkpoint& checkpoint, const TpPlan& rules,
                                  const Selection& selection, std::uint32_t world) {
  pipeline::check_mismatches(checkpoint.index_mismatches, selection);
  const Catalog& catalog = checkpoint.catalog;
  std::vector<pipeline::ItemName> others = pipeline::names_of(checkpoint.index_mismatches);
  if (composes(rules) || !checkpoint.aliases.empty()) {
    const auto tensors = stored_targets(std::vector<Placement>(catalog.tensors().size()));
    return composed_targets(catalog, checkpoint.aliases, tensors, rules, selection,
                            std::move(others), world, TpPlan::Extent::whole);
  }
  return stored_targets(rules.place_all(
      catalog, world, pipeline::select_stored(selection, catalog, rules, std::move(others))));
}

std::vector<Target> joined_targets(const Checkpoint& checkpoint, const TpPlan& rules,
                                   const Options& options, std::uint32_t world) {
  placement::JoinedShards joined =
      placement::join_shards(checkpoint.catalog, *checkpoint.sharded_state);
  if (composes(rules)) {
    return composed_targets(joined.whole, {}, joined.targets, rules, options.selection, {}, world,
                            TpPlan::Extent::part);
  }
  return place(std::move(joined.targets),
               rules.place_all(joined.whole, world, select(options.selection, joined.whole, rules),
                               TpPlan::Extent::part));
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
  fail_unrecorded(checkpoint, world);
}

std::vector<std::string> open_warnings(const Checkpoint& checkpoint, const TpPlan& rules,
                                       const Options& options, std::uint32_t world) {
  std::vector<std::string> warnings = checkpoint.warnings;
  if (checkpoint.sharded_state) return warnings;
  std::ranges::move(rules.warnings(checkpoint.catalog, world / std::max(options.plan.replicas, 1U)),
                    std::back_inserter(warnings));
  return warnings;
}

std::vector<Target> select_targets(const Checkpoint& checkpoint, const TpPlan& rules,
                                   const Options& options, std::uint32_t world) {
  const Catalog& catalog = checkpoint.catalog;
  const std::uint32_t ranks = replica_size(world, options.plan);
  if (!checkpoint.sharded_state) {
    return plain_targets(checkpoint, rules, options.selection, ranks);
  }
  pipeline::check_sharded_state(options, checkpoint, ranks);
  if (!pipeline::loads_as_saved(options, checkpoint, ranks)) {
    return joined_targets(checkpoint, rules, options, ranks);
  }
  return drop(placement::targets_as_saved(catalog, *checkpoint.sharded_state),
              select(options.selection, catalog, rules));
}

}  // namespace safeshuffle
