// Selects the assignment of a load by what it costs.
#pragma once

#include <cstdint>
#include <span>

#include "safeshuffle/options.hpp"

#include "plan/geometry.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::plan {

struct Candidate {
  Assignment assignment = Assignment::round_robin;
  double seconds = 0;  ///< estimated
};

/// The first candidate, unless another is at least 5 % faster. Then the first of those that are,
/// skipping any that the fastest beats by more than 5 %. `candidates` must not be empty. Pure.
const Candidate& best(std::span<const Candidate> candidates);

/// Throws ConfigError.
void check_site(const Site& site);

/// Sets the assignment, and which tensors are sliced with it: for `mixed`, by the costs of the
/// site. Fills the schedule for it.
void fill_for(Schedule& schedule, const Geometries& geometries, Assignment assignment,
              const Site& site, std::uint64_t window);

/// Sets the assignment and the reason for it: round-robin, or in layer order striped or sliced,
/// unless another is at least 5 % faster. Fills the schedule for it.
void choose_assignment(Schedule& schedule, const Geometries& geometries, const Site& site,
                       std::uint64_t window);

}  // namespace safeshuffle::plan
