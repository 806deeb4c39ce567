// Which tensors of a checkpoint are loaded.
#pragma once

#include <string>
#include <vector>

#include "safeshuffle/metadata.hpp"

namespace safeshuffle {

/// Patterns of tensor names, as a shell has them for files: `*` stands for any characters, dots
/// included, `?` for one,
/// `[a-c]` for one of several, and `\` takes the meaning from the character that follows. Case
/// matters.
struct Selection {
  std::vector<std::string> only;  ///< tensors must match one of these; empty: all do
  std::vector<std::string> skip;  ///< tensors that match one of these are left out
};

/// Whether each tensor of the catalog, in its order, is selected. Throws ConfigError if a pattern
/// matches no tensor, or if no tensor is left.
std::vector<bool> select(const Selection& selection, const Catalog& catalog);

}  // namespace safeshuffle
