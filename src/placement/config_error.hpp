// One way to report a defect of a rule file or of config.json.
#pragma once

#include <string>

namespace safeshuffle::placement {

/// Throws ConfigError with `file` = origin and a cause that names the key (may be empty).
[[noreturn]] void fail_config(const std::string& origin, const std::string& key,
                              const std::string& cause);

}  // namespace safeshuffle::placement
