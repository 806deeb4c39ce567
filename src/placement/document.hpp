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

/// An error with `file` = the document's name, and a cause that names the key and, where the text
/// has it, its line and column. `key` is a path such as "rules[2].units"; it may be empty.
ErrorRecord config_error(const Document& document, const std::string& key,
                         const std::string& cause);

/// Throws ConfigError with that error.
[[noreturn]] void fail_config(const Document& document, const std::string& key,
                              const std::string& cause);

/// The same for the byte at `offset` of the text.
[[noreturn]] void fail_config_at(const Document& document, std::uint64_t offset,
                                 const std::string& key, const std::string& cause);

/// Parses the text. Throws ConfigError, with line and column, if it is not JSON, if an object has a
/// key twice, or if it is nested deeper than 32 levels.
nlohmann::json parse_strict(const Document& document);

}  // namespace safeshuffle::placement
