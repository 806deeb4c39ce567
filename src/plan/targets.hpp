// From targets to what is needed of each stored tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "safeshuffle/metadata.hpp"
#include "safeshuffle/options.hpp"
#include "safeshuffle/target.hpp"

#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// Throws PlanError, naming the target, unless every target is possible in a group of `world`
/// ranks: its rank and axis exist; its fills are those of a Composition as documented; it has whole
/// bytes, which can be counted.
void check_targets(const Catalog& catalog, std::span<const Target> targets, std::uint32_t world);

/// Throws PlanError if a rank would hold two targets of the same name: whoever asks it for a tensor
/// by name gets the only one.
void check_names(const Catalog& catalog, std::span<const Target> targets);

/// What the targets that any rank holds need of stored tensors, ordered by (tensor, target, fill).
std::vector<Use> uses_of_targets(std::span<const Target> targets);

/// Schedule::first_use.
std::vector<std::uint32_t> first_uses(std::span<const Use> uses, std::size_t tensors);

/// The type that a stored tensor has in an arena.
DType loaded_dtype(const TensorInfo& tensor, const PlanOptions& options);

}  // namespace safeshuffle::plan
