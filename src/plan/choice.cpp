#include "plan/choice.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iomanip>
#include <sstream>
#include <string>
#include <vector>

#include "safeshuffle/error.hpp"

#include "plan/cost_fields.hpp"
#include "plan/estimate.hpp"

namespace safeshuffle::plan {
namespace {

// What is not faster, or less even, by more than this makes no difference.
constexpr double tolerance = 0.05;

bool is_skewed(const Schedule& schedule) {
  std::uint64_t total = 0;
  std::uint64_t most = 0;
  for (const RankSummary& rank : schedule.ranks) {
    total += rank.read_bytes;
    most = std::max(most, rank.read_bytes);
  }
  return static_cast<double>(most) * schedule.world > (1 + tolerance) * static_cast<double>(total);
}

bool exchanges(const Schedule& schedule) {
  return std::ranges::any_of(schedule.ranks,
                             [](const RankSummary& rank) { return rank.received_bytes != 0; });
}

// What may be faster than round-robin, by which the schedule is filled: nothing if every rank reads
// just what it keeps. From storage, no other mode reads less than round-robin, so slices are for
// files that are cached.
std::vector<Assignment> alternatives(const Schedule& schedule, const Site& site) {
  if (!exchanges(schedule)) return {};
  std::vector<Assignment> found;
  if (is_skewed(schedule)) found = {Assignment::balanced, Assignment::striped};
  if (site.nodes == 1 && site.cached_share > 0) found.push_back(Assignment::sliced);
  return found;
}

struct Candidate {
  Assignment assignment = Assignment::round_robin;
  double seconds = 0;
};

// The first that is not slower by more than the tolerance than any other.
const Candidate& best(const std::vector<Candidate>& candidates) {
  const auto faster = [](const Candidate& a, const Candidate& b) { return a.seconds < b.seconds; };
  const double least = std::ranges::min_element(candidates, faster)->seconds;
  return *std::ranges::find_if(candidates, [least](const Candidate& candidate) {
    return candidate.seconds * (1 - tolerance) <= least;
  });
}

std::string estimate_text(double seconds) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(seconds < 10 ? 3 : 0) << seconds << " s";
  return text.str();
}

std::string reason_for(const Candidate& chosen, const std::vector<Candidate>& candidates,
                       const Site& site) {
  std::string text = "estimated " + estimate_text(chosen.seconds);
  for (const Candidate& other : candidates) {
    if (other.assignment == chosen.assignment) continue;
    text += ", " + std::string(name(other.assignment)) + " " + estimate_text(other.seconds);
  }
  if (site.nodes != 1) return text;
  return text + "; " + std::to_string(std::lround(100 * site.cached_share)) +
         " % of the files known to be cached";
}

}  // namespace

void check_site(const Site& site) {
  if (site.nodes == 0) throw ConfigError("the site must have at least 1 node");
  if (!(site.cached_share >= 0 && site.cached_share <= 1)) {
    throw ConfigError("the cached share must be from 0 to 1");
  }
  for (const CostField& field : cost_fields) {
    const double cost = site.costs.*field.value;
    if (std::isfinite(cost) && cost >= 0) continue;
    throw ConfigError("the cost " + std::string(field.name) + " must be finite and not negative");
  }
}

void choose_assignment(Schedule& schedule, const Geometries& geometries, const Site& site,
                       const std::function<void()>& fill) {
  std::vector<Candidate> candidates;
  const auto consider = [&](Assignment assignment) {
    schedule.assignment = assignment;
    fill();
    candidates.push_back({assignment, estimate_seconds(schedule, geometries, site)});
  };
  consider(Assignment::round_robin);
  for (const Assignment other : alternatives(schedule, site)) consider(other);

  const Candidate& chosen = best(candidates);
  if (schedule.assignment != chosen.assignment) {
    schedule.assignment = chosen.assignment;
    fill();
  }
  schedule.assignment_reason = reason_for(chosen, candidates, site);
}

}  // namespace safeshuffle::plan
