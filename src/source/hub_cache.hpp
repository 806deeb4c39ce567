// The cache of Hugging Face's tools: HUB/models--ORG--NAME/{blobs,refs,snapshots/REVISION}.
#pragma once

#include <string>

#include "source/source.hpp"

namespace safeshuffle::source {

/// The directory of the revision that a model's directory in the cache, or the `snapshots` in it,
/// selects: the one that refs/main names, else the only one. Empty if `directory` is neither.
/// Throws IoError that lists the candidates if the choice is ambiguous, as it is for the cache
/// itself.
std::string cached_revision(const Source& source, const std::string& directory);

}  // namespace safeshuffle::source
