// hf://ORG/NAME[@REVISION][/INSIDE]
#pragma once

#include <string>
#include <string_view>

namespace safeshuffle::source {

struct HubPath {
  std::string model;     ///< ORG/NAME
  std::string revision;  ///< a branch, a tag or a commit; branches may have slashes, written as %2F
  std::string inside;    ///< of the repository, without slashes around it
};

bool is_hub_path(std::string_view path) noexcept;

/// Throws IoError if such a path is incomplete.
HubPath parse_hub_path(const std::string& path);

}  // namespace safeshuffle::source
