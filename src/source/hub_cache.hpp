// The cache of Hugging Face's tools: HUB/models--ORG--NAME/{blobs,refs,snapshots/REVISION}.
#pragma once

#include <string>

#include "source/source.hpp"

namespace safeshuffle::source {

/// The directory of the revision that is meant by a model's directory in the cache, or by the
/// `snapshots` in it: the one that refs/main names, else the only one. Empty if `directory` is
/// neither. Throws IoError with what there is to choose from if it is not clear which is meant,
/// also for the cache itself, with all its models.
std::string cached_revision(const Source& source, const std::string& directory);

}  // namespace safeshuffle::source
