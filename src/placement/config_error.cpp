#include "placement/config_error.hpp"

#include "safeshuffle/error.hpp"

namespace safeshuffle::placement {

void fail_config(const std::string& origin, const std::string& key, const std::string& cause) {
  const std::string where = key.empty() ? "" : "\"" + key + "\": ";
  throw ConfigError(ErrorRecord{.file = origin, .cause = where + cause});
}

}  // namespace safeshuffle::placement
