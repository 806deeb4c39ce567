// What a mistyped key may have meant.
#pragma once

#include <string>
#include <string_view>

#include "safeshuffle/metadata.hpp"

#include "placement/matcher.hpp"

namespace safeshuffle::placement {

/// The module or tensor of the catalog, with digits written `*`, whose name is most like that of a
/// key, or ends in it; empty if none is like it.
std::string similar_name(const Matcher& matcher, const Catalog& catalog, std::string_view key);

}  // namespace safeshuffle::placement
