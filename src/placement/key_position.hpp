// Where a key stands in a JSON text: looked up once there is something to say about it.
#pragma once

#include <string>

#include "placement/document.hpp"

namespace safeshuffle::placement {

/// "line 3, column 5" of the key, or list element, with this path, such as "rules[2].units"; of the
/// nearest one around it if the text does not have it; empty if there is none, or the text is not
/// JSON.
std::string position_of_key(const Document& document, const std::string& path);

}  // namespace safeshuffle::placement
