// A strict parser for the JSON that people write in rule files and config.json.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "placement/document.hpp"

namespace safeshuffle::placement {

/// Parses the text. Throws ConfigError, with line and column, if it is not JSON, if an object has a
/// key twice, or if it is nested deeper than 32 levels.
nlohmann::json parse_strict(const Document& document);

}  // namespace safeshuffle::placement
