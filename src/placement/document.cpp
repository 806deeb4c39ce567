#include "placement/document.hpp"

#include "safeshuffle/error.hpp"

#include "core/text.hpp"
#include "placement/key_position.hpp"

namespace safeshuffle::placement {
namespace {

[[noreturn]] void fail(const Document& document, const std::string& position,
                       const std::string& key, const std::string& cause) {
  const std::string where = position.empty() ? "" : position + ": ";
  const std::string what = key.empty() ? "" : "\"" + key + "\": ";
  throw ConfigError(ErrorRecord{.file = document.name, .cause = where + what + cause});
}

}  // namespace

void fail_config(const Document& document, const std::string& key, const std::string& cause) {
  fail(document, position_of_key(document, key), key, cause);
}

void fail_config_at(const Document& document, std::uint64_t offset, const std::string& key,
                    const std::string& cause) {
  fail(document, core::line_and_column(document.text, offset), key, cause);
}

}  // namespace safeshuffle::placement
