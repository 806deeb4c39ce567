// What a Selection selects, of anything that has names.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/selection.hpp"

namespace safeshuffle::pipeline {

/// One of the names of an item.
struct ItemName {
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  const std::string* name = nullptr;
  std::size_t item = 0;  ///< its index; `none`: a name that a pattern may match, but no item
};

/// Throws FormatError for the first tensor on which index and headers disagree that is not skipped.
void check_mismatches(const std::vector<ErrorRecord>& mismatches, const Selection& selection);

/// Their tensors as names without an item, which must not outlive `mismatches`.
std::vector<ItemName> names_of(const std::vector<ErrorRecord>& mismatches);

/// Whether each of `items` items is selected: if one of its names matches, and if `in_stage`, which
/// is asked only if the selection has a stage, says so of those whose names do. Throws as `select`.
std::vector<bool> select_items(
    const Selection& selection, const std::vector<ItemName>& names, std::size_t items,
    const std::function<std::vector<bool>(const std::vector<bool>&)>& in_stage);

/// `select` (selection.hpp), if patterns may also match `others`.
std::vector<bool> select_stored(const Selection& selection, const Catalog& catalog,
                                const TpPlan& rules, std::vector<ItemName> others);

}  // namespace safeshuffle::pipeline
