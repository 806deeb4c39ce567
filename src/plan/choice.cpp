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
#include "plan/fill.hpp"
#include "plan/waves.hpp"

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

// Reading less takes about as long.
constexpr std::uint64_t smallest_slice = std::uint64_t{256} << 10;

// Whether slices of a tensor are as good to read as the whole: what each rank keeps is contiguous,
// or nearly so, and none of it is small. Then no rate makes slices worse, since the ranks together
// read the same bytes, and exchange none of them.
bool divides_well(const Schedule& schedule, std::uint32_t tensor) {
  if (is_replicated(schedule, tensor)) return false;
  const std::uint64_t bytes = schedule.catalog.tensors()[tensor].bytes;
  std::uint64_t sum = 0;
  std::uint64_t least = bytes;
  RankColumns columns;
  RankColumns scratch;
  for_each_receiver(schedule, tensor, columns, [&](std::uint32_t rank, const RankColumns&) {
    const std::uint64_t slice = read_part(schedule, tensor, {0, bytes}, rank, scratch).size();
    sum += slice;
    least = std::min(least, slice);
  });
  return least >= smallest_slice && static_cast<double>(schedule.replicas * sum) <=
                                        (1 + tolerance) * static_cast<double>(bytes);
}

// By geometry.
std::vector<bool> dividing_well(const Schedule& schedule, const Geometries& geometries) {
  std::vector<bool> divides(geometries.example.size());
  for (std::size_t i = 0; i < divides.size(); ++i) {
    divides[i] = geometries.tensors[i] != 0 && divides_well(schedule, geometries.example[i]);
  }
  return divides;
}

// What may be faster than round-robin, by which the schedule is filled: nothing if every rank reads
// just what it keeps. From storage, no mode reads less than round-robin, so slices of all tensors
// are for files that are cached.
std::vector<Assignment> alternatives(const Schedule& schedule, const Geometries& geometries,
                                     const Site& site) {
  if (!exchanges(schedule)) return {};
  std::vector<Assignment> found;
  if (is_skewed(schedule)) found = {Assignment::balanced, Assignment::striped};
  if (site.nodes == 1 && site.cached_share > 0) found.push_back(Assignment::sliced);
  const std::vector<bool> divide = dividing_well(schedule, geometries);
  if (std::ranges::find(divide, true) != divide.end()) found.push_back(Assignment::mixed);
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

void set_assignment(Schedule& schedule, const Geometries& geometries, Assignment assignment) {
  schedule.assignment = assignment;
  std::vector<bool> sliced(geometries.example.size(), assignment == Assignment::sliced);
  if (assignment == Assignment::mixed) sliced = dividing_well(schedule, geometries);
  for (std::size_t tensor = 0; tensor < schedule.sliced.size(); ++tensor) {
    schedule.sliced[tensor] = sliced[geometries.of_tensor[tensor]];
  }
}

void choose_assignment(Schedule& schedule, const Geometries& geometries, const Site& site,
                       std::uint64_t window) {
  std::vector<Candidate> candidates;
  const auto consider = [&](Assignment assignment) {
    set_assignment(schedule, geometries, assignment);
    fill(schedule, geometries, window);
    candidates.push_back({assignment, estimate(schedule, geometries, site).total});
  };
  consider(Assignment::round_robin);
  for (const Assignment other : alternatives(schedule, geometries, site)) consider(other);

  const Candidate& chosen = best(candidates);
  if (schedule.assignment != chosen.assignment) {
    set_assignment(schedule, geometries, chosen.assignment);
    fill(schedule, geometries, window);
  }
  schedule.assignment_reason = reason_for(chosen, candidates, site);
}

}  // namespace safeshuffle::plan
