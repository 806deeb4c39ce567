// The rule files that are part of the library: configs/tp/*.json.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "placement/document.hpp"

namespace safeshuffle::placement {

struct BuiltIn {
  std::string name;                      ///< of the file, without directory and extension
  std::vector<std::string> model_types;  ///< for which it is selected
  Document document;
};

/// The text of one, by its name; none if there is no such file.
std::optional<Document> built_in_document(std::string_view name);

/// All of them, by name.
std::vector<BuiltIn> built_in_rules();

}  // namespace safeshuffle::placement
