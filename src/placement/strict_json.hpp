// JSON as people write it in rule files and config.json, read strictly.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace safeshuffle::placement {

/// Parses `text`. Throws ConfigError (file = origin) if it is not JSON, if an object has a key
/// twice, or if it is nested deeper than 32 levels.
nlohmann::json parse_strict(std::string_view text, const std::string& origin);

}  // namespace safeshuffle::placement
