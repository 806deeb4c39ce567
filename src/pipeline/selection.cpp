#include "pipeline/selection.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "safeshuffle/error.hpp"
#include "safeshuffle/placement.hpp"

#include "core/glob.hpp"

namespace safeshuffle {
namespace {

using pipeline::ItemName;

// Marks the items with a name that matches a pattern.
void mark(const std::string& pattern, const std::vector<ItemName>& names,
          std::vector<bool>& matching) {
  bool found = false;
  for (const auto& [name, item] : names) {
    if (!core::matches_glob(pattern, *name)) continue;
    found = true;
    if (item != ItemName::none) matching[item] = true;
  }
  if (!found) throw ConfigError("no tensor of the checkpoint matches '" + pattern + "'");
}

std::vector<bool> matching(const std::vector<std::string>& patterns,
                           const std::vector<ItemName>& names, std::size_t items) {
  std::vector<bool> result(items);
  for (const std::string& pattern : patterns) mark(pattern, names, result);
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
