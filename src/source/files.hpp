// Files that this process can open.
#pragma once

#include "source/source.hpp"

namespace safeshuffle::source {

/// Paths are those of the system; symbolic links are followed; objects are regular files. Lives as
/// long as the process.
const Source& files();

}  // namespace safeshuffle::source
