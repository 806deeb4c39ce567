// The position of a key in a JSON text: looked up only when there is an error to report.
#pragma once

#include <string>

#include "placement/document.hpp"

namespace safeshuffle::placement {

/// "line 3, column 5" of the key, or list element, with this path, such as "rules[2].units"; of the
/// innermost enclosing one if the text does not have it; empty if there is none, or the text is not
/// JSON.
std::string position_of_key(const Document& document, const std::string& path);

}  // namespace safeshuffle::placement
