#include "placement/composed_targets.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "safeshuffle/error.hpp"

#include "core/tensor_bytes.hpp"

namespace safeshuffle::placement {
namespace {

std::vector<std::string> names_of(const Recipe& recipe) {
  std::vector<std::string> names{recipe.composition.name};
  const std::vector<std::string>& aliases = recipe.composition.aliases;
  names.insert(names.end(), aliases.begin(), aliases.end());
  return names;
}

[[noreturn]] void fail_recipe(const Recipe& recipe, const Catalog& catalog, std::string cause) {
  const TensorInfo& first = catalog.tensors()[recipe.uses.front()];
  throw PlanError(ErrorRecord{.file = catalog.files()[first.file].path,
                              .tensor = recipe.composition.name,
                              .cause = std::move(cause)});
}

/// Everything that rules place: the tensors of a checkpoint, and what is made of them under other
/// names or with other shapes.
class Placer {
 public:
  Placer(const Catalog& catalog, const std::vector<Recipe>& recipes)
      : catalog_(catalog), recipes_(recipes), all_(all_tensors(catalog, recipes)) {}

  std::vector<Placement> place(const TpPlan& rules, std::uint32_t world,
                               const std::vector<bool>& selected, TpPlan::Extent extent) {
    placements_ = rules.place_all(all_, world, placed(selected), extent);
    std::vector<Placement> placements;
    for (std::size_t i = 0; i < recipes_.size(); ++i) {
      placements.push_back(selected[i] ? placement_of(recipes_[i])
                                       : Placement{Placement::Kind::dropped, {}});
    }
    return placements;
  }

 private:
  static Catalog all_tensors(const Catalog& catalog, const std::vector<Recipe>& recipes) {
    std::map<std::string, TensorInfo, std::less<>> made;
    for (const Recipe& recipe : recipes) {
      if (recipe.joined) continue;
      TensorInfo info = catalog.tensors()[recipe.uses.front()];
      info.shape = recipe.composition.shape;
      info.bytes = core::tensor_bytes(info.shape, info.dtype);
      for (std::string& name : names_of(recipe)) {
        info.name = name;
        made.emplace(std::move(name), info);
      }
    }
    std::vector<TensorInfo> all;
    for (const TensorInfo& stored : catalog.tensors()) {
      const auto changed = made.find(stored.name);
      all.push_back(stored);
      if (changed == made.end()) continue;
      all.back().shape = changed->second.shape;
      all.back().bytes = changed->second.bytes;
      made.erase(changed);
    }
    for (auto& [name, info] : made) all.push_back(std::move(info));
    std::ranges::stable_sort(
        all, {}, [](const TensorInfo& info) { return std::pair(info.file, info.file_offset); });
    const std::span<const FileInfo> files = catalog.files();
    return {{files.begin(), files.end()}, std::move(all)};
  }

  std::size_t index_of(std::string_view name) const {
    return static_cast<std::size_t>(all_.find(name) - all_.tensors().data());
  }

  const Placement& placement_of(std::string_view name) const { return placements_[index_of(name)]; }

  const std::string& name_of(std::uint32_t tensor) const { return catalog_.tensors()[tensor].name; }

  /// Which of all tensors the selected recipes need the placements of.
  std::vector<bool> placed(const std::vector<bool>& selected) const {
    std::vector<bool> placed(all_.tensors().size());
    for (std::size_t i = 0; i < recipes_.size(); ++i) {
      if (!selected[i]) continue;
      const Recipe& recipe = recipes_[i];
      if (recipe.joined) {
        for (const std::uint32_t part : recipe.uses) placed[index_of(name_of(part))] = true;
      } else {
        for (const std::string& name : names_of(recipe)) placed[index_of(name)] = true;
      }
    }
    return placed;
  }

  Placement placement_of(const Recipe& recipe) const {
    if (recipe.joined) return joined_placement(recipe);
    const Placement& placement = placement_of(recipe.composition.name);
    for (const std::string& alias : recipe.composition.aliases) {
      if (placement_of(alias) == placement) continue;
      fail_recipe(recipe, catalog_,
                  "it is tied to '" + alias + "', which the rules place differently");
    }
    return placement;
  }

  Placement joined_placement(const Recipe& recipe) const {
    const Placement& first = placement_of(name_of(recipe.uses.front()));
    const bool fused =
        first.kind == Placement::Kind::sharded && first.split.axis == recipe.composition.axis;
    Placement joined = first;
    if (fused) joined.split = {first.split.axis, {.units = 1, .replicate = true}, {}};
    for (const std::uint32_t part : recipe.uses) {
      const Placement& placement = placement_of(name_of(part));
      if (!fused ? placement != first : !append_part(placement, part, joined.split)) {
        fail_joined(recipe, part);
      }
    }
    return joined;
  }

  /// Whether it is split along the same axis, in a way that fused parts can be.
  bool append_part(const Placement& placement, std::uint32_t tensor, Split& joined) const {
    const auto& [axis, sharing, parts, packing] = placement.split;
    if (placement.kind != Placement::Kind::sharded || axis != joined.axis || packing != Packing{}) {
      return false;
    }
    if (parts.empty()) {
      joined.parts.push_back({catalog_.tensors()[tensor].shape[axis], sharing});
      return true;
    }
    joined.parts.insert(joined.parts.end(), parts.begin(), parts.end());
    return sharing == Sharing{.units = 1, .replicate = true};
  }

  [[noreturn]] void fail_joined(const Recipe& recipe, std::uint32_t part) const {
    fail_recipe(recipe, catalog_,
                "the rules place its parts '" + name_of(recipe.uses.front()) + "' and '" +
                    name_of(part) + "' in ways that cannot be joined along axis " +
                    std::to_string(recipe.composition.axis));
  }

  const Catalog& catalog_;
  const std::vector<Recipe>& recipes_;
  Catalog all_;
  std::vector<Placement> placements_;  // by tensor of all_
};

/// Appends to a composition what fills part of a tensor.
void append_fills(const Recipe& recipe, const Fill& wanted, const Catalog& catalog,
                  const std::vector<Target>& tensors, Composition& out) {
  if (wanted.tensor == Fill::zeros) {
    out.fills.push_back(wanted);
    return;
  }
  const Target& source = tensors[wanted.tensor];
  if (!source.composition) {
    out.fills.push_back(wanted);
    out.fills.back().tensor = source.tensor;
    return;
  }
  if (source.composition->axis != out.axis) {
    fail_recipe(recipe, catalog,
                "it is composed along axis " + std::to_string(out.axis) + " of '" +
                    source.composition->name + "', which was saved in shards along axis " +
                    std::to_string(source.composition->axis));
  }
  const std::uint64_t wanted_end = wanted.source_begin + wanted.length;
  for (const Fill& fill : source.composition->fills) {
    const std::uint64_t begin = std::max(fill.target_begin, wanted.source_begin);
    const std::uint64_t end = std::min(fill.target_begin + fill.length, wanted_end);
    if (begin >= end) continue;
    out.fills.push_back({fill.tensor, fill.source_begin + (begin - fill.target_begin),
                         wanted.target_begin + (begin - wanted.source_begin), end - begin});
  }
}

Target fill_recipe(const Recipe& recipe, const Catalog& catalog,
                   const std::vector<Target>& tensors) {
  Composition composition = recipe.composition;
  if (composition.fills.empty()) {
    const Target& stored = tensors[recipe.uses.front()];
    if (composition.aliases.empty()) return stored;
    if (stored.composition) composition.axis = stored.composition->axis;
    composition.fills = {{recipe.uses.front(), 0, 0, composition.shape[composition.axis]}};
  }
  const std::vector<Fill> wanted = std::exchange(composition.fills, {});
  for (const Fill& fill : wanted) append_fills(recipe, fill, catalog, tensors, composition);
  const std::uint32_t first = composition.fills.front().tensor;
  return {first, {}, std::make_shared<const Composition>(std::move(composition)), nullptr};
}

/// Gives a target the name of another, if that is otherwise the same.
bool unite(Target& target, const Target& other, const Catalog& catalog) {
  if (other.placement != target.placement) return false;
  Composition united = *other.composition;
  if (const auto& own = target.composition) {
    const auto filling = [](const Composition& c) { return std::tie(c.shape, c.axis, c.fills); };
    if (filling(*own) != filling(united)) return false;
    united.aliases = own->aliases;
  }
  united.aliases.push_back(std::exchange(united.name, name_of(target, catalog)));
  target.composition = std::make_shared<const Composition>(std::move(united));
  return true;
}

}  // namespace

std::vector<Placement> place_recipes(const TpPlan& rules, const Catalog& catalog,
                                     const std::vector<Recipe>& recipes, std::uint32_t world,
                                     const std::vector<bool>& selected, TpPlan::Extent extent) {
  return Placer(catalog, recipes).place(rules, world, selected, extent);
}

std::vector<Target> fill_recipes(const std::vector<Recipe>& recipes, const Catalog& catalog,
                                 const std::vector<Target>& tensors) {
  std::vector<Target> targets;
  targets.reserve(recipes.size());
  for (const Recipe& recipe : recipes) targets.push_back(fill_recipe(recipe, catalog, tensors));
  return targets;
}

std::vector<Target> unite_aliases(std::vector<Target> targets, const Catalog& catalog,
                                  const std::vector<Alias>& aliases) {
  if (aliases.empty()) return targets;  // which may be of another catalog, if shards are joined
  std::map<std::string, std::size_t, std::less<>> numbers;
  for (std::size_t i = 0; i < targets.size(); ++i) numbers[name_of(targets[i], catalog)] = i;
  std::vector<bool> united(targets.size());
  for (const Alias& alias : aliases) {
    const auto second = numbers.find(alias.name);
    const auto first = numbers.find(alias.tensor);
    if (second == numbers.end() || first == numbers.end()) continue;
    united[second->second] = unite(targets[first->second], targets[second->second], catalog);
  }
  std::vector<Target> left;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (!united[i]) left.push_back(std::move(targets[i]));
  }
  return left;
}

}  // namespace safeshuffle::placement
