// From rules with the section `compose` to targets: which tensors are made of which, where each
// goes, and what fills it.
#pragma once

#include <cstdint>
#include <vector>

#include "safeshuffle/placement.hpp"
#include "safeshuffle/target.hpp"

#include "placement/rule_set.hpp"

namespace safeshuffle::placement {

/// How a tensor that is loaded is made of those of a checkpoint. `catalog` below is always that of
/// the checkpoint, or of the tensors that a sharded state has shards of.
struct Recipe {
  /// `fills` are of tensors of the catalog; without any, it is the first one of `uses` as stored.
  Composition composition;

  /// The tensors of the catalog that it is made of, and those that its names replace; at least one.
  std::vector<std::uint32_t> uses;

  bool joined = false;  ///< placed by the rules for its parts, not by those for its name
};

/// A recipe for every tensor to be loaded, and for every alias that no entry of the section gives.
/// Rules without the section compose nothing else. Throws ConfigError if an entry matches nothing
/// in a whole checkpoint, or if entries cannot be combined; PlanError naming a tensor that does not
/// fit.
std::vector<Recipe> compose(const RuleSet& rules, const Catalog& catalog, TpPlan::Extent extent,
                            const std::vector<Alias>& aliases = {});

/// TpPlan::place_all for recipes: by recipe. `selected` is by recipe as well.
std::vector<Placement> place_recipes(const TpPlan& rules, const Catalog& catalog,
                                     const std::vector<Recipe>& recipes, std::uint32_t world,
                                     const std::vector<bool>& selected, TpPlan::Extent extent);

/// Targets by recipe, not placed yet. `tensors` tells, by tensor of the catalog, how that is filled
/// from what is stored. Throws PlanError naming a tensor whose shards are of another axis than the
/// recipe's.
std::vector<Target> fill_recipes(const std::vector<Recipe>& recipes, const Catalog& catalog,
                                 const std::vector<Target>& tensors);

/// Makes an alias one with its tensor, in the same memory, if both are filled and placed alike.
std::vector<Target> unite_aliases(std::vector<Target> targets, const Catalog& catalog,
                                  const std::vector<Alias>& aliases);

}  // namespace safeshuffle::placement
