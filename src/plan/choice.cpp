#include "plan/choice.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iomanip>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "safeshuffle/error.hpp"

#include "plan/assignment.hpp"
#include "plan/cost_fields.hpp"
#include "plan/estimate.hpp"
#include "plan/summary.hpp"
#include "plan/tensor_cost.hpp"

namespace safeshuffle::plan {
namespace {

bool is_skewed(const Schedule& schedule) {
  const auto most = std::ranges::max_element(schedule.ranks, {}, &RankSummary::read_bytes);
  const auto total = static_cast<double>(read_bytes(schedule));
  return static_cast<double>(most->read_bytes) * schedule.world > (1 + tolerance) * total;
}

bool exchanges(const Schedule& schedule) {
  return std::ranges::any_of(schedule.ranks,
                             [](const RankSummary& rank) { return rank.received_bytes != 0; });
}

// Whether there is a geometry of which tensors are read, and which is sliced, or is not.
bool any(const Geometries& geometries, const std::vector<bool>& sliced, bool wanted) {
  for (std::size_t i = 0; i < sliced.size(); ++i) {
    if (geometries.tensors[i] != 0 && sliced[i] == wanted) return true;
  }
  return false;
}

// Unless another is faster: in layer order, striped, but nothing is exchanged if every tensor is
// better read in slices, as those of a sharded state are. `by_cost`: by geometry, what `mixed`
// slices.
Assignment preferred(const Schedule& schedule, const Geometries& geometries,
                     const std::vector<bool>& by_cost) {
  if (schedule.order == Order::file) return Assignment::round_robin;
  return any(geometries, by_cost, false) ? Assignment::striped : Assignment::sliced;
}

// What may be faster than the preferred one, by which the schedule is filled: nothing if every rank
// reads just what it keeps. From storage, no mode reads less than round-robin or striped, so all
// tensors are read in slices only if files are cached, or if each of them is better read so.
std::vector<Assignment> alternatives(const Schedule& schedule, const Geometries& geometries,
                                     const std::vector<bool>& by_cost, const Site& site) {
  if (!exchanges(schedule)) return {};
  const bool by_file = schedule.order == Order::file;
  std::vector<Assignment> found;
  if (by_file && is_skewed(schedule)) found = {Assignment::balanced, Assignment::striped};
  const bool slices_some = any(geometries, by_cost, true);
  const bool slices_all = !any(geometries, by_cost, false);
  const bool is_cached = site.nodes == 1 && site.cached_share > 0;
  if (slices_all || is_cached) found.push_back(Assignment::sliced);
  if (by_file && slices_some && !slices_all) found.push_back(Assignment::mixed);
  return found;
}

// The bytes of all tensors that are read, by how they come to the ranks that keep them.
struct Ways {
  double sliced = 0;
  double scattered = 0;
  double broadcast = 0;
};

Ways ways_of(const Schedule& schedule, const Geometries& geometries) {
  Ways ways;
  for (std::size_t i = 0; i < geometries.example.size(); ++i) {
    const std::uint32_t tensor = geometries.example[i];
    double& bytes = schedule.sliced[tensor]           ? ways.sliced
                    : is_replicated(schedule, tensor) ? ways.broadcast
                                                      : ways.scattered;
    bytes += static_cast<double>(geometries.tensors[i] * schedule.catalog.tensors()[tensor].bytes);
  }
  return ways;
}

std::string percent(double share) {
  return std::to_string(std::lround(100 * share)) + " %";
}

// Neither all nor nothing is rounded to either.
std::string part_text(double share) {
  if (share < 0.005) return "under 1 %";
  return share > 0.995 && share < 1 ? "over 99 %" : percent(share);
}

// What nothing comes by is left out: "60 % of the bytes sliced, 40 % broadcast".
std::string ways_text(const Schedule& schedule, const Geometries& geometries) {
  const Ways ways = ways_of(schedule, geometries);
  const double all = ways.sliced + ways.scattered + ways.broadcast;
  std::string text;
  const auto add = [&](double bytes, const char* way) {
    if (bytes == 0) return;
    text += (text.empty() ? "" : ", ") + part_text(bytes / all) +
            (text.empty() ? " of the bytes " : " ") + way;
  };
  add(ways.sliced, "sliced");
  add(ways.scattered, "scattered");
  add(ways.broadcast, "broadcast");
  return text;
}

std::string estimate_text(double seconds) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(seconds < 10 ? 3 : 0) << seconds << " s";
  return text.str();
}

std::string origin_of_costs(const Site& site) {
  if (!site.costs_origin.empty()) return site.costs_origin;
  const bool given = std::ranges::any_of(
      cost_fields, [&](const CostField& field) { return site.costs.*field.value != 0; });
  return given ? "given" : "defaults";
}

std::string reason_for(const Candidate& chosen, const std::vector<Candidate>& candidates,
                       const Site& site) {
  std::string text = "estimated " + estimate_text(chosen.seconds);
  for (const Candidate& other : candidates) {
    if (other.assignment == chosen.assignment) continue;
    text += ", " + std::string(name(other.assignment)) + " " + estimate_text(other.seconds);
  }
  text += "; costs: " + origin_of_costs(site);
  if (site.nodes != 1) return text;
  return text + "; " + percent(site.cached_share) + " of the files known to be cached";
}

void fill_with(Schedule& schedule, const Geometries& geometries, Assignment assignment,
               const std::vector<bool>& sliced_by_cost, std::uint64_t window) {
  schedule.assignment = assignment;
  std::vector<bool> sliced(geometries.example.size(), assignment == Assignment::sliced);
  if (assignment == Assignment::mixed) sliced = sliced_by_cost;
  for (std::size_t tensor = 0; tensor < schedule.sliced.size(); ++tensor) {
    schedule.sliced[tensor] = sliced[geometries.of_tensor[tensor]];
  }
  fill(schedule, geometries, window);
}

}  // namespace

const Candidate& best(std::span<const Candidate> candidates) {
  const double least = std::ranges::min_element(candidates, {}, &Candidate::seconds)->seconds;
  const auto is_good = [least](const Candidate& candidate) {
    return candidate.seconds * (1 - tolerance) <= least;
  };
  const Candidate& first = candidates.front();
  if (is_good(first)) return first;
  return *std::ranges::find_if(candidates, [&](const Candidate& candidate) {
    return is_good(candidate) && candidate.seconds <= first.seconds * (1 - tolerance);
  });
}

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

void fill_for(Schedule& schedule, const Geometries& geometries, Assignment assignment,
              const Site& site, std::uint64_t window) {
  schedule.window = window;
  const bool is_mixed = assignment == Assignment::mixed;
  fill_with(schedule, geometries, assignment,
            is_mixed ? sliced_by_cost(schedule, geometries, site) : std::vector<bool>(), window);
  if (is_mixed && exchanges(schedule)) {
    schedule.assignment_reason = ways_text(schedule, geometries);
  }
}

void choose_assignment(Schedule& schedule, const Geometries& geometries, const Site& site,
                       std::uint64_t window) {
  schedule.window = window;
  const std::vector<bool> by_cost = sliced_by_cost(schedule, geometries, site);
  std::vector<Candidate> candidates;
  const auto consider = [&](Assignment assignment) {
    fill_with(schedule, geometries, assignment, by_cost, window);
    candidates.push_back({assignment, estimate(schedule, geometries, site).total});
  };
  consider(preferred(schedule, geometries, by_cost));
  for (const Assignment other : alternatives(schedule, geometries, by_cost, site)) consider(other);

  const Candidate& chosen = best(candidates);
  if (schedule.assignment != chosen.assignment) {
    fill_with(schedule, geometries, chosen.assignment, by_cost, window);
  }
  schedule.assignment_reason = reason_for(chosen, candidates, site);
  if (exchanges(schedule)) {
    schedule.assignment_reason += "; " + ways_text(schedule, geometries);
  }
}

}  // namespace safeshuffle::plan
