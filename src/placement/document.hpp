// A JSON text that people write, such as a rule file or config.json, and how its errors are
// reported.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "safeshuffle/error.hpp"

namespace safeshuffle::placement {

/// Immutable once made.
struct Document {
  std::string name;  ///< its name in messages: a path, or "config.json"
  std::string text;
};

/// An error with `file` = the document's name, and a cause that names the key, a path such as
/// "rules[2].units"; it may be empty.
ErrorRecord config_error(const Document& document, const std::string& key,
                         const std::string& cause);

/// Throws ConfigError with that error.
[[noreturn]] void fail_config(const Document& document, const std::string& key,
                              const std::string& cause);

/// Parses the text. Throws ConfigError, which names line and column, if it is not JSON, if an
/// object has a key twice, or if it is nested deeper than 32 levels.
nlohmann::json parse_strict(const Document& document);

}  // namespace safeshuffle::placement
