#include "simulation/node.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace safeshuffle::simulation {
namespace {

using Resources = std::array<double, resource_count>;

constexpr double tiny = 1e-12;

Resources demand_of(const std::vector<Activity>& activities) {
  Resources sum{};
  for (const Activity& each : activities) {
    for (std::size_t i = 0; i < resource_count; ++i) {
      if (each.speed == 0) sum[i] += each.demand[i];
    }
  }
  return sum;
}

// Whether it needs something of which nothing is left.
bool is_held_up(const Activity& activity, const Resources& left) {
  for (std::size_t i = 0; i < resource_count; ++i) {
    if (activity.demand[i] > 0 && left[i] <= tiny) return true;
  }
  return false;
}

}  // namespace

void Node::start(const SimulatedSpan& span, const Work& work, double now) {
  advance(now);
  Activity activity;
  activity.span = span;
  activity.left = std::max(work.alone, *std::ranges::max_element(work.use));
  for (std::size_t i = 0; i < resource_count; ++i) {
    activity.demand[i] = work.use[i] / activity.left;
  }
  activity.span.begin = now;
  active_.push_back(activity);
  is_shared_ = false;
}

// All ranks start the same at once, so sharing waits until they have.
double Node::next() {
  if (std::exchange(is_shared_, true)) return next_;
  share();
  next_ = std::numeric_limits<double>::infinity();
  for (const Activity& each : active_) next_ = std::min(next_, now_ + each.left / each.speed);
  return next_;
}

std::vector<SimulatedSpan> Node::finish(double now) {
  advance(now);
  std::vector<SimulatedSpan> finished;
  const double rounding = tiny * std::max(1.0, now);
  const auto is_done = [rounding](const Activity& each) { return each.left <= rounding; };
  for (Activity& each : active_) {
    if (!is_done(each)) continue;
    each.span.end = now;
    finished.push_back(each.span);
  }
  std::erase_if(active_, is_done);
  is_shared_ = false;
  return finished;
}

void Node::advance(double now) {
  const double seconds = now - now_;
  now_ = now;
  for (Activity& each : active_) {
    each.left -= seconds * each.speed;
    for (std::size_t i = 0; i < resource_count; ++i) {
      busy_[i] += seconds * each.speed * each.demand[i];
    }
  }
}

// Raises the speed of all until a resource is used up, then of those that do not need it, and so
// on.
void Node::share() {
  for (Activity& each : active_) each.speed = 0;
  Resources left;
  left.fill(1);
  double level = 0;
  for (std::size_t settled = 0; settled < active_.size();) {
    const Resources demand = demand_of(active_);
    double step = 1 - level;
    for (std::size_t i = 0; i < resource_count; ++i) {
      if (demand[i] > 0) step = std::min(step, left[i] / demand[i]);
    }
    level += step;
    for (std::size_t i = 0; i < resource_count; ++i) left[i] -= step * demand[i];
    for (Activity& each : active_) {
      if (each.speed != 0 || (level < 1 - tiny && !is_held_up(each, left))) continue;
      each.speed = level;
      ++settled;
    }
  }
}

}  // namespace safeshuffle::simulation
