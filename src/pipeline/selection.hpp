// What a Selection selects, of anything that has names.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "safeshuffle/selection.hpp"

namespace safeshuffle::pipeline {

/// One of the names of an item.
struct ItemName {
  const std::string* name = nullptr;
  std::size_t item = 0;  ///< its index
};

/// Whether each of `items` items is selected: if one of its names matches, and if `in_stage`, which
/// is asked only if the selection has a stage, says so of those whose names do. Throws as `select`.
std::vector<bool> select_items(
    const Selection& selection, const std::vector<ItemName>& names, std::size_t items,
    const std::function<std::vector<bool>(const std::vector<bool>&)>& in_stage);

}  // namespace safeshuffle::pipeline
