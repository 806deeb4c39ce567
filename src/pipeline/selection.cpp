#include "pipeline/selection.hpp"

#include <algorithm>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/placement.hpp"

#include "core/glob.hpp"

namespace safeshuffle {
namespace {

using pipeline::ItemName;

/// What has a name, by the name.
using ItemsByName = std::unordered_multimap<std::string_view, const ItemName*>;

bool is_name(const std::string& pattern) {
  return pattern.find_first_of("*?[\\") == std::string::npos;
}

std::vector<const ItemName*> matches_of(const std::string& pattern,
                                        const std::vector<ItemName>& names,
                                        const ItemsByName& by_name) {
  std::vector<const ItemName*> matches;
  if (is_name(pattern)) {
    const auto [begin, end] = by_name.equal_range(pattern);
    for (auto item = begin; item != end; ++item) matches.push_back(item->second);
  } else {
    for (const ItemName& item : names) {
      if (core::matches_glob(pattern, *item.name)) matches.push_back(&item);
    }
  }
  return matches;
}

// Patterns may be the names of a large part of a checkpoint: these are looked up.
std::vector<bool> matching(const std::vector<std::string>& patterns,
                           const std::vector<ItemName>& names, std::size_t items) {
  ItemsByName by_name;
  if (std::ranges::any_of(patterns, &is_name)) {
    for (const ItemName& item : names) by_name.emplace(*item.name, &item);
  }
  std::vector<bool> result(items);
  for (const std::string& pattern : patterns) {
    const auto matches = matches_of(pattern, names, by_name);
    if (matches.empty()) {
      throw ConfigError("no tensor of the checkpoint matches '" + pattern + "'");
    }
    for (const ItemName* match : matches) {
      if (match->item != ItemName::none) result[match->item] = true;
    }
  }
  return result;
}

}  // namespace

std::vector<bool> pipeline::select_items(
    const Selection& selection, const std::vector<ItemName>& names, std::size_t items,
    const std::function<std::vector<bool>(const std::vector<bool>&)>& in_stage) {
  std::vector<bool> selected = matching(selection.only, names, items);
  if (selection.only.empty()) selected.assign(items, true);
  const std::vector<bool> skipped = matching(selection.skip, names, items);
  std::transform(selected.begin(), selected.end(), skipped.begin(), selected.begin(),
                 [](bool chosen, bool left_out) { return chosen && !left_out; });
  if (selection.stage) selected = in_stage(selected);
  const bool none = std::find(selected.begin(), selected.end(), true) == selected.end();
  if (none && !selected.empty()) throw ConfigError("no tensor is left to load");
  return selected;
}

void pipeline::check_mismatches(const std::vector<ErrorRecord>& mismatches,
                                const Selection& selection) {
  const auto required = std::ranges::find_if(mismatches, [&](const ErrorRecord& mismatch) {
    return std::ranges::none_of(selection.skip, [&](const std::string& pattern) {
      return core::matches_glob(pattern, mismatch.tensor);
    });
  });
  if (required == mismatches.end()) return;
  ErrorRecord record = *required;
  record.cause += "; to load without the tensor, skip it (--skip)";
  throw FormatError(std::move(record));
}

std::vector<ItemName> pipeline::names_of(const std::vector<ErrorRecord>& mismatches) {
  std::vector<ItemName> names;
  for (const ErrorRecord& mismatch : mismatches)
    names.push_back({&mismatch.tensor, ItemName::none});
  return names;
}

std::vector<bool> pipeline::select_stored(const Selection& selection, const Catalog& catalog,
                                          const TpPlan& rules, std::vector<ItemName> others) {
  std::vector<ItemName> names = std::move(others);
  const std::span<const TensorInfo> tensors = catalog.tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) names.push_back({&tensors[i].name, i});
  return select_items(selection, names, tensors.size(), [&](const auto& selected) {
    return rules.in_stage(catalog, *selection.stage, selected);
  });
}

std::vector<bool> select(const Selection& selection, const Catalog& catalog, const TpPlan& rules) {
  return pipeline::select_stored(selection, catalog, rules, {});
}

}  // namespace safeshuffle
