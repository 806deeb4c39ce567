// Catalogs of some tensors of a checkpoint: a plan takes time for every tensor of its catalog.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "safeshuffle/metadata.hpp"
#include "safeshuffle/target.hpp"

namespace safeshuffle::pipeline {

/// All files, and only these tensors, in their order.
Catalog only(const Catalog& catalog, const std::set<std::uint32_t>& chosen);

/// The stored tensors that fill a target, or several.
std::set<std::uint32_t> tensors_of(const Target& target);
std::set<std::uint32_t> tensors_of(const std::vector<Target>& targets);

/// The target, filled from the tensors of `only(catalog, chosen)`.
Target renumbered(Target target, const std::set<std::uint32_t>& chosen);

}  // namespace safeshuffle::pipeline
