// Patterns of names as a shell has them for files.
#pragma once

#include <string>

namespace safeshuffle::core {

/// Whether `name` matches; see Selection (selection.hpp) for what patterns mean. Names are UTF-8,
/// of which a locale may make something else; patterns of letters, digits and dots mean the same in
/// all.
bool matches_glob(const std::string& pattern, const std::string& name);

}  // namespace safeshuffle::core
