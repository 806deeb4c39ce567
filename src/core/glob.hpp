// Patterns of names as a shell has them for files.
#pragma once

#include <string>

namespace safeshuffle::core {

/// Whether `name` matches; see Selection (selection.hpp) for what patterns mean.
bool matches_glob(const std::string& pattern, const std::string& name);

}  // namespace safeshuffle::core
