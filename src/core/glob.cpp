#include "core/glob.hpp"

#include <fnmatch.h>

namespace safeshuffle::core {

bool matches_glob(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

}  // namespace safeshuffle::core
