#include "pipeline/selection.hpp"

#include <algorithm>

#include "safeshuffle/error.hpp"
#include "safeshuffle/placement.hpp"

#include "core/glob.hpp"

namespace safeshuffle {
namespace {

using pipeline::ItemName;

// Marks the items with a name that matches a pattern. Names are UTF-8, of which a locale may make
// something else; patterns of letters, digits and dots mean the same in all.
void mark(const std::string& pattern, const std::vector<ItemName>& names,
          std::vector<bool>& matching) {
  bool found = false;
  for (const auto& [name, item] : names) {
    if (!core::matches_glob(pattern, *name)) continue;
    matching[item] = found = true;
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

std::vector<bool> select(const Selection& selection, const Catalog& catalog, const TpPlan& rules) {
  std::vector<ItemName> names;
  for (const TensorInfo& tensor : catalog.tensors()) names.push_back({&tensor.name, names.size()});
  return pipeline::select_items(selection, names, names.size(), [&](const auto& selected) {
    return rules.in_stage(catalog, *selection.stage, selected);
  });
}

}  // namespace safeshuffle
