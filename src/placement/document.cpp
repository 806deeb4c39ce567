#include "placement/document.hpp"

#include <utility>

#include <nlohmann/json.hpp>

#include "core/text.hpp"
#include "format/foreign_content.hpp"
#include "format/json_text.hpp"

namespace safeshuffle::placement {

ErrorRecord config_error(const Document& document, const std::string& key,
                         const std::string& cause) {
  return {.file = document.name, .cause = (key.empty() ? "" : "\"" + key + "\": ") + cause};
}

void fail_config(const Document& document, const std::string& key, const std::string& cause) {
  throw ConfigError(config_error(document, key, cause));
}

nlohmann::json parse_strict(const Document& document) try {
  return format::parse_strict(document.text, document.name);
} catch (const FormatError& error) {
  const std::string foreign = format::foreign_content(document.text);
  if (!foreign.empty()) fail_config(document, "", foreign);
  const ErrorRecord& record = error.record();
  ErrorRecord failure = config_error(document, record.tensor, record.cause);
  const std::string position = core::line_and_column(document.text, record.offset.value_or(0));
  failure.cause = position + ": " + failure.cause;
  throw ConfigError(std::move(failure));
}

}  // namespace safeshuffle::placement
