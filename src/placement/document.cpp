#include "placement/document.hpp"

#include "core/text.hpp"
#include "placement/key_position.hpp"

namespace safeshuffle::placement {
namespace {

ErrorRecord error_at(const Document& document, const std::string& position, const std::string& key,
                     const std::string& cause) {
  const std::string where = position.empty() ? "" : position + ": ";
  const std::string what = key.empty() ? "" : "\"" + key + "\": ";
  return {.file = document.name, .cause = where + what + cause};
}

}  // namespace

ErrorRecord config_error(const Document& document, const std::string& key,
                         const std::string& cause) {
  return error_at(document, position_of_key(document, key), key, cause);
}

void fail_config(const Document& document, const std::string& key, const std::string& cause) {
  throw ConfigError(config_error(document, key, cause));
}

void fail_config_at(const Document& document, std::uint64_t offset, const std::string& key,
                    const std::string& cause) {
  throw ConfigError(error_at(document, core::line_and_column(document.text, offset), key, cause));
}

}  // namespace safeshuffle::placement
