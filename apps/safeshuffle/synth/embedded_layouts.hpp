// The layouts that are part of the command.
#pragma once

#include <span>

#include "core/embedded.hpp"

namespace safeshuffle::core {

/// configs/layouts/*.json; defined by the build.
std::span<const EmbeddedFile> embedded_layouts();

}  // namespace safeshuffle::core
