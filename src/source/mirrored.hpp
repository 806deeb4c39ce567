// Objects that are in several places.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "source/source.hpp"

namespace safeshuffle::source {

/// Paths of `source`. Where an object, or part of it, cannot be had, it is taken from the next of
/// `places`, directories or URLs, where it must have the same name and size, and the same bytes at
/// some offsets. Identities are made of size and these bytes, so that they are the same everywhere.
std::unique_ptr<Source> make_mirrored(std::unique_ptr<const Source> source,
                                      std::vector<std::string> places);

}  // namespace safeshuffle::source
