// Applies the section `compose` to the tensors of a checkpoint.
#include "placement/compose.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "safeshuffle/error.hpp"

#include "core/arithmetic.hpp"
#include "placement/composed_targets.hpp"
#include "placement/name_pattern.hpp"
#include "placement/unmatched.hpp"

namespace safeshuffle::placement {
namespace {

/// For each name of an entry, the tensor of that name, if the checkpoint has it.
using Found = std::vector<std::optional<std::uint32_t>>;

/// Far above any tensor's; keeps later sums of sizes from overflowing.
constexpr std::uint64_t most_bits = std::uint64_t{1} << 60;

/// The index of the first name without a tensor; the number of names if there is none.
std::size_t first_missing(const Found& found) {
  return static_cast<std::size_t>(std::find(found.begin(), found.end(), std::nullopt) -
                                  found.begin());
}

class Composer {
 public:
  Composer(const RuleSet& rules, const Catalog& catalog, TpPlan::Extent extent)
      : rules_(rules),
        catalog_(catalog),
        tensors_(catalog.tensors()),
        extent_(extent),
        recipes_(tensors_.size()) {
    for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
      short_names_.push_back(rules.matcher.without_prefix(tensors_[i].name));
      recipes_[i] = Recipe{{tensors_[i].name, {}, tensors_[i].shape, 0, {}}, {i}, false};
    }
  }

  /// Ties come first, so that all entries about a tied tensor, by any of its names, are about the
  /// same one.
  std::vector<Recipe> run(const std::vector<Alias>& aliases) {
    if (rules_.compose) apply(*rules_.compose);
    for (const Alias& alias : aliases) add(alias);
    std::vector<Recipe> recipes;
    for (std::optional<Recipe>& recipe : recipes_) {
      if (recipe) recipes.push_back(std::move(*recipe));
    }
    std::ranges::move(made_, std::back_inserter(recipes));
    return recipes;
  }

 private:
  void apply(const Compose& compose) {
    for (const TieEntry& tie : compose.ties) apply(tie);
    for (const PadEntry& pad : compose.pads) apply(pad);
    for (const SplitEntry& split : compose.splits) apply(split);
    for (const JoinEntry& join : compose.joins) apply(join);
  }

  /// As the tensor is stored or padded. Scalars and tensors without elements cannot be composed.
  void add(const Alias& alias) {
    const TensorInfo* stored = catalog_.find(alias.tensor);
    if (stored == nullptr || stored->shape.empty() || stored->bytes == 0) return;
    const auto tensor = static_cast<std::uint32_t>(stored - tensors_.data());
    if (!new_names_.insert(alias.name).second) return;
    Composition composition{
        alias.name, {}, stored->shape, 0, {{tensor, 0, 0, stored->shape.front()}}};
    const std::optional<Recipe>& recipe = recipes_[tensor];
    if (recipe && !recipe->composition.fills.empty()) {
      composition = recipe->composition;
      composition.name = alias.name;
      composition.aliases.clear();
    }
    made_.push_back({std::move(composition), {tensor}, false});
  }

  [[noreturn]] void fail_tensor(std::uint32_t tensor, std::string cause) const {
    throw PlanError(ErrorRecord{.file = catalog_.files()[tensors_[tensor].file].path,
                                .tensor = tensors_[tensor].name,
                                .cause = std::move(cause)});
  }

  [[noreturn]] void fail_entry(const Entry& entry, const std::string& cause) const {
    fail_config(rules_.document, entry.path, cause);
  }

  std::string quoted(std::uint32_t tensor) const { return "'" + tensors_[tensor].name + "'"; }

  /// The tensors that the names of an entry match, by the numbers in their names.
  std::map<Numbers, Found> find(const Entry& entry, const std::vector<std::string>& names) const {
    std::map<Numbers, Found> all;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::string_view pattern = rules_.matcher.without_prefix(names[i]);
      for (std::uint32_t tensor = 0; tensor < tensors_.size(); ++tensor) {
        const auto numbers = match_numbers(pattern, short_names_[tensor]);
        if (!numbers) continue;
        Found& found = all.try_emplace(*numbers, names.size()).first->second;
        if (found[i]) {
          fail_tensor(tensor, "\"" + names[i] + "\" matches " + quoted(*found[i]) + " as well");
        }
        found[i] = tensor;
      }
    }
    if (all.empty()) check_optional(entry, names);
    return all;
  }

  void check_optional(const Entry& entry, const std::vector<std::string>& names) const {
    if (entry.optional || extent_ == TpPlan::Extent::part) return;
    const Key key{.name = names.front(), .path = entry.path};
    fail_keys(rules_, catalog_, {&key});
  }

  /// The name that an entry gives: if the entry leaves out the base-model prefix of a stored name,
  /// with that prefix.
  std::string new_name(const std::string& pattern, const Numbers& numbers,
                       const std::string& stored_pattern, std::uint32_t stored) const {
    const auto is_short = [&](const std::string& name) {
      return rules_.matcher.without_prefix(name).size() == name.size();
    };
    const std::string& name = tensors_[stored].name;
    const std::string prefix = is_short(stored_pattern) && is_short(pattern)
                                   ? name.substr(0, name.size() - short_names_[stored].size())
                                   : "";
    return prefix + with_numbers(pattern, numbers);
  }

  void claim_name(const Entry& entry, const std::string& name) {
    if (catalog_.find(name) != nullptr) {
      fail_entry(entry, "the checkpoint already has a tensor '" + name + "'");
    }
    if (!new_names_.insert(name).second) {
      fail_entry(entry, "another entry gives the name '" + name + "' as well");
    }
  }

  /// Throws unless no other entry changes the tensor.
  void check_untouched(const Entry& entry, std::uint32_t tensor) const {
    const std::optional<Recipe>& recipe = recipes_[tensor];
    if (recipe && recipe->composition.fills.empty() && recipe->composition.aliases.empty()) return;
    fail_entry(entry, "another entry is about " + quoted(tensor) +
                          " as well; of one tensor, only \"tie\" and \"pad\" can be combined");
  }

  std::uint32_t axis_of(std::uint32_t tensor, int dim) const {
    const auto axis = resolve_axis(dim, tensors_[tensor].shape.size());
    if (!axis) fail_tensor(tensor, "it has no dimension " + std::to_string(dim));
    return *axis;
  }

  void apply(const TieEntry& tie) {
    if (tie.tied == false) return;
    for (const auto& [numbers, found] : find(tie.entry, tie.names)) {
      const bool has_all = first_missing(found) == found.size();
      if (has_all && !tie.tied) continue;
      tie_together(tie, numbers, found);
    }
  }

  void tie_together(const TieEntry& tie, const Numbers& numbers, const Found& found) {
    const auto first = std::ranges::find_if(found, &std::optional<std::uint32_t>::has_value);
    const std::uint32_t kept = **first;
    check_untouched(tie.entry, kept);
    if (tensors_[kept].shape.empty()) fail_tensor(kept, "a scalar cannot be tied");
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (found[i] == kept) continue;
      std::string alias;
      if (found[i]) {
        check_untouched(tie.entry, *found[i]);
        check_same(kept, *found[i]);
        recipes_[*found[i]].reset();
        recipes_[kept]->uses.push_back(*found[i]);
        alias = tensors_[*found[i]].name;
      } else {
        alias = with_numbers(tie.names[i], numbers);
        claim_name(tie.entry, alias);
      }
      recipes_[kept]->composition.aliases.push_back(std::move(alias));
    }
  }

  void check_same(std::uint32_t kept, std::uint32_t other) const {
    if (tensors_[kept].shape == tensors_[other].shape &&
        tensors_[kept].dtype == tensors_[other].dtype) {
      return;
    }
    fail_tensor(other,
                "it has another shape or type than " + quoted(kept) + ", to which it is tied");
  }

  void apply(const PadEntry& pad) {
    std::set<std::uint32_t> padded;
    for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
      if (recipes_[i] && is_called(*recipes_[i], pad.name)) padded.insert(i);
    }
    if (padded.empty()) check_optional(pad.entry, {pad.name});
    for (const std::uint32_t tensor : padded) pad_tensor(pad, tensor);
  }

  bool is_called(const Recipe& recipe, const std::string& pattern) const {
    const auto matches = [&](const std::string& name) {
      return match_numbers(rules_.matcher.without_prefix(pattern),
                           rules_.matcher.without_prefix(name))
          .has_value();
    };
    return matches(recipe.composition.name) ||
           std::ranges::any_of(recipe.composition.aliases, matches);
  }

  void pad_tensor(const PadEntry& pad, std::uint32_t tensor) {
    Composition& composition = recipes_[tensor]->composition;
    if (!composition.fills.empty()) fail_entry(pad.entry, "another entry pads " + quoted(tensor));
    composition.axis = axis_of(tensor, pad.dim);
    const std::uint64_t extent = composition.shape[composition.axis];
    const std::uint64_t rest = (pad.multiple - extent % pad.multiple) % pad.multiple;
    if (rest == 0) return;
    const auto padded = core::checked_add(extent, rest);
    composition.shape[composition.axis] = padded.value_or(0);
    if (!padded || !fits(tensor, composition.shape)) {
      fail_tensor(tensor, "it is too large if it is padded to a multiple of " +
                              std::to_string(pad.multiple) + " along axis " +
                              std::to_string(composition.axis));
    }
    composition.fills = {{tensor, 0, 0, extent}, {Fill::zeros, 0, extent, rest}};
  }

  bool fits(std::uint32_t tensor, const Shape& shape) const {
    std::optional<std::uint64_t> total = bits(tensors_[tensor].dtype);
    for (const std::uint64_t extent : shape) {
      total = core::checked_mul(*total, extent);
      if (!total || *total > most_bits) return false;
    }
    return true;
  }

  void apply(const SplitEntry& split) {
    for (const auto& [numbers, found] : find(split.entry, {split.name})) {
      split_tensor(split, numbers, *found.front());
    }
  }

  void split_tensor(const SplitEntry& split, const Numbers& numbers, std::uint32_t tensor) {
    check_untouched(split.entry, tensor);
    recipes_[tensor].reset();
    const std::uint32_t axis = axis_of(tensor, split.dim);
    const std::uint64_t extent = tensors_[tensor].shape[axis];
    std::uint64_t total = 0;
    for (const std::uint64_t size : split.sizes) total += size;
    if (extent == 0 || extent % total != 0) {
      fail_tensor(tensor, "axis " + std::to_string(axis) + " (" + std::to_string(extent) +
                              " elements) does not consist of " + std::to_string(total) +
                              " equal units, as its \"sizes\" require");
    }
    std::uint64_t begin = 0;
    for (std::size_t i = 0; i < split.into.size(); ++i) {
      const std::uint64_t length = extent / total * split.sizes[i];
      Shape shape = tensors_[tensor].shape;
      shape[axis] = length;
      std::string name = new_name(split.into[i], numbers, split.name, tensor);
      claim_name(split.entry, name);
      made_.push_back({{std::move(name), {}, std::move(shape), axis, {{tensor, begin, 0, length}}},
                       {tensor},
                       false});
      begin += length;
    }
  }

  void apply(const JoinEntry& join) {
    for (const auto& [numbers, found] : find(join.entry, join.parts)) {
      join_tensors(join, numbers, found);
    }
  }

  void join_tensors(const JoinEntry& join, const Numbers& numbers, const Found& found) {
    const std::vector<std::uint32_t> parts = all_parts(join, numbers, found);
    const std::uint32_t first = parts.front();
    const std::uint32_t axis = axis_of(first, join.dim);
    std::string name = new_name(join.as, numbers, join.parts.front(), first);
    claim_name(join.entry, name);
    Composition composition{std::move(name), {}, tensors_[first].shape, axis, {}};
    std::uint64_t end = 0;
    for (const std::uint32_t part : parts) {
      check_untouched(join.entry, part);
      recipes_[part].reset();
      check_joinable(first, part, axis);
      const std::uint64_t length = tensors_[part].shape[axis];
      if (length != 0) composition.fills.push_back({part, 0, end, length});
      const auto sum = core::checked_add(end, length);
      if (!sum) fail_tensor(part, "it is too large to be joined with " + quoted(first));
      end = *sum;
    }
    if (end == 0) fail_tensor(first, "it has no elements to be joined");
    composition.shape[axis] = end;
    made_.push_back({std::move(composition), parts, true});
  }

  std::vector<std::uint32_t> all_parts(const JoinEntry& join, const Numbers& numbers,
                                       const Found& found) const {
    std::vector<std::uint32_t> parts;
    for (const auto& part : found) {
      if (part) parts.push_back(*part);
    }
    if (parts.size() == found.size()) return parts;
    fail_tensor(parts.front(), join.entry.path + " of " + rules_.document.name +
                                   " joins it with '" +
                                   with_numbers(join.parts[first_missing(found)], numbers) +
                                   "', which the checkpoint does not have");
  }

  void check_joinable(std::uint32_t first, std::uint32_t part, std::uint32_t axis) const {
    Shape shape = tensors_[part].shape;
    if (shape.size() == tensors_[first].shape.size()) shape[axis] = tensors_[first].shape[axis];
    if (shape == tensors_[first].shape && tensors_[part].dtype == tensors_[first].dtype) return;
    fail_tensor(part, "it cannot be joined with " + quoted(first) + " along axis " +
                          std::to_string(axis) + ": shapes or types differ");
  }

  const RuleSet& rules_;
  const Catalog& catalog_;
  std::span<const TensorInfo> tensors_;
  TpPlan::Extent extent_;
  std::vector<std::string_view> short_names_;   // without base-model prefix
  std::vector<std::optional<Recipe>> recipes_;  // by tensor; none: part of other recipes
  std::vector<Recipe> made_;                    // with new names
  std::set<std::string> new_names_;
};

}  // namespace

std::vector<Recipe> compose(const RuleSet& rules, const Catalog& catalog, TpPlan::Extent extent,
                            const std::vector<Alias>& aliases) {
  return Composer(rules, catalog, extent).run(aliases);
}

}  // namespace safeshuffle::placement
