#include "safeshuffle/selection.hpp"

#include <algorithm>
#include <cstdint>
#include <fnmatch.h>
#include <span>

#include "safeshuffle/error.hpp"
#include "safeshuffle/placement.hpp"

namespace safeshuffle {
namespace {

// Marks the tensors that match a pattern. Names are UTF-8, of which a locale may make something
// else; patterns of letters, digits and dots mean the same in all.
void mark(const std::string& pattern, const Catalog& catalog, std::vector<bool>& matching) {
  bool found = false;
  const std::span<const TensorInfo> tensors = catalog.tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (::fnmatch(pattern.c_str(), tensors[i].name.c_str(), 0) != 0) continue;
    matching[i] = found = true;
  }
  if (!found) throw ConfigError("no tensor of the checkpoint matches '" + pattern + "'");
}

std::vector<bool> matching(const std::vector<std::string>& patterns, const Catalog& catalog) {
  std::vector<bool> result(catalog.tensors().size());
  for (const std::string& pattern : patterns) mark(pattern, catalog, result);
  return result;
}

}  // namespace

std::vector<bool> select(const Selection& selection, const Catalog& catalog, const TpPlan& rules) {
  std::vector<bool> selected = matching(selection.only, catalog);
  if (selection.only.empty()) selected.assign(selected.size(), true);
  const std::vector<bool> skipped = matching(selection.skip, catalog);
  std::transform(selected.begin(), selected.end(), skipped.begin(), selected.begin(),
                 [](bool chosen, bool left_out) { return chosen && !left_out; });
  if (selection.stage) selected = rules.in_stage(catalog, *selection.stage, selected);
  const bool none = std::find(selected.begin(), selected.end(), true) == selected.end();
  if (none && !selected.empty()) throw ConfigError("no tensor is left to load");
  return selected;
}

}  // namespace safeshuffle
