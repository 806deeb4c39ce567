// The rule files that are part of the library: configs/tp/*.json.
#pragma once

#include <string>
#include <vector>

#include "placement/document.hpp"

namespace safeshuffle::placement {

struct BuiltIn {
  std::string name;                      ///< of the file, without directory and extension
  std::vector<std::string> model_types;  ///< for which it is selected
  Document document;
};

/// All of them, by name.
std::vector<BuiltIn> built_in_rules();

}  // namespace safeshuffle::placement
