#include "safeshuffle/plan.hpp"

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>
#include <utility>

#include "safeshuffle/error.hpp"

#include "core/defaults.hpp"
#include "core/text.hpp"
#include "plan/arena.hpp"
#include "plan/choice.hpp"
#include "plan/cut.hpp"
#include "plan/geometry.hpp"
#include "plan/hash.hpp"
#include "plan/landing.hpp"
#include "plan/layers.hpp"
#include "plan/proof.hpp"
#include "plan/schedule.hpp"
#include "plan/targets.hpp"
#include "plan/warnings.hpp"
#include "plan/waves.hpp"

namespace safeshuffle {
namespace {

using core::smallest_window;
using plan::Schedule;

// In the others, a rank reads whole files, or what is exchanged before what is sliced.
void check_order(const PlanOptions& options) {
  if (options.order == Order::file) return;
  for (const Assignment possible :
       {Assignment::striped, Assignment::sliced, Assignment::automatic}) {
    if (options.assignment == possible) return;
  }
  throw ConfigError("tensors cannot be read in layer order with the assignment " +
                    std::string(name(options.assignment)) + "; use striped, sliced or auto");
}

void check_arguments(const Schedule& schedule, const PlanOptions& options) {
  if (options.window < smallest_window) {
    throw ConfigError("the window must be at least " + std::to_string(smallest_window) + " bytes");
  }
  check_order(options);
  if (plan::fills_lent_memory(schedule) && schedule.replicas != 1) {
    throw ConfigError("with replicas, neither slices nor memory of the caller can be loaded");
  }
  plan::check_site(options.site);
  plan::check_targets(schedule.catalog, schedule.targets, schedule.replica_size);
  plan::check_names(schedule.catalog, schedule.targets);
}

const RankSummary& neediest(const Schedule& schedule) {
  return *std::max_element(schedule.ranks.begin(), schedule.ranks.end(),
                           [](const RankSummary& a, const RankSummary& b) {
                             return a.peak_device_bytes < b.peak_device_bytes;
                           });
}

std::uint64_t left_for_plan(const PlanOptions& options) {
  return options.memory_budget - std::min(options.memory_budget, options.reserved_bytes);
}

// The tensor at which a rank's shards, in arena order, outgrow the budget; else the last one.
const TensorInfo& first_beyond(const Schedule& schedule, std::uint32_t rank, std::uint64_t budget) {
  const std::vector<std::uint64_t> offsets = plan::arena_offsets(schedule, rank);
  std::size_t found = 0;
  std::uint64_t found_offset = 0;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    if (offsets[i] == plan::not_held || offsets[i] > budget) continue;
    if (offsets[i] >= found_offset) {
      found = i;
      found_offset = offsets[i];
    }
  }
  return schedule.catalog.tensors()[schedule.targets[found].tensor];
}

[[noreturn]] void fail_budget(const Schedule& schedule, const PlanOptions& options) {
  const RankSummary& rank = neediest(schedule);
  const TensorInfo& tensor = first_beyond(schedule, rank.rank, left_for_plan(options));
  const std::string reserved =
      options.reserved_bytes == 0
          ? ""
          : ", of which " + std::to_string(options.reserved_bytes) + " are reserved,";
  const std::string landing =
      rank.landing_bytes == 0 ? "" : ", landing buffer " + std::to_string(rank.landing_bytes);
  throw MemoryError(ErrorRecord{
      .rank = static_cast<std::int32_t>(rank.rank),
      .tensor = tensor.name,
      .cause = "the memory budget of " + std::to_string(options.memory_budget) + " bytes" +
               reserved + " cannot hold the " + std::to_string(rank.peak_device_bytes) +
               " bytes of the plan (shards " + std::to_string(rank.arena_bytes) + ", slabs " +
               std::to_string(schedule.slabs) + " x " + std::to_string(rank.slab_bytes) +
               ", pack buffer " + std::to_string(rank.pack_bytes) + landing + "; this tensor has " +
               std::to_string(tensor.bytes) + " stored bytes) with a window of " +
               std::to_string(schedule.window) +
               " bytes, the smallest practical window; a budget of " +
               std::to_string(rank.peak_device_bytes + options.reserved_bytes) +
               " bytes is sufficient"});
}

// Everything about single tensors. For lent memory, they are converted where they arrive.
void cut(Schedule& schedule, const PlanOptions& options) {
  const std::size_t tensors = schedule.catalog.tensors().size();
  schedule.uses = plan::uses_of_targets(schedule.targets);
  schedule.first_use = plan::first_uses(schedule.uses, tensors);
  schedule.dtypes.reserve(tensors);
  schedule.cuts.reserve(tensors);
  schedule.lands.reserve(tensors);
  schedule.sliced.resize(tensors);
  for (std::uint32_t i = 0; i < tensors; ++i) {
    const TensorInfo& tensor = schedule.catalog.tensors()[i];
    schedule.dtypes.push_back(
        plan::fills_lent_memory(schedule) ? tensor.dtype : plan::loaded_dtype(tensor, options));
    schedule.cuts.push_back(plan::cut_of(schedule, i));
    schedule.lands.push_back(!plan::arrives_in_place(schedule, i));
  }
  schedule.layers = plan::find_layers(schedule);
}

// The shards need the same memory whatever the window is; slabs and pack buffer shrink with it. So
// do the costs change, and what is chosen by them. No budget reduces the window below a practical
// size: nobody wants a load that takes hours.
void fill_within(Schedule& schedule, const PlanOptions& options) {
  const plan::Geometries geometries = plan::find_geometries(schedule);
  const auto fill = [&](std::uint64_t window) {
    if (options.assignment == Assignment::automatic) {
      plan::choose_assignment(schedule, geometries, options.site, window);
    } else {
      plan::fill_for(schedule, geometries, options.assignment, options.site, window);
    }
  };
  fill(options.window);
  if (options.memory_budget == 0) return;
  const std::uint64_t budget = left_for_plan(options);
  const std::uint64_t smallest =
      std::min(options.window, plan::smallest_practical_window(schedule));
  while (neediest(schedule).peak_device_bytes > budget) {
    if (schedule.window == smallest) fail_budget(schedule, options);
    const bool hopeless = neediest(schedule).arena_bytes > budget;
    fill(hopeless ? smallest : std::max(smallest, std::bit_floor(schedule.window - 1)));
  }
}

// Adds where the tensor is stored to a failure.
[[noreturn]] void rethrow_with_file(ErrorRecord record, const Catalog& catalog) {
  if (const TensorInfo* tensor = catalog.find(record.tensor)) {
    record.file = catalog.files()[tensor->file].path;
  }
  raise(std::move(record));
}

}  // namespace

Plan::Plan(std::shared_ptr<const Schedule> schedule) : schedule_(std::move(schedule)) {}

std::uint32_t Plan::world() const noexcept {
  return schedule_->world;
}
std::uint32_t Plan::replicas() const noexcept {
  return schedule_->replicas;
}
std::uint32_t Plan::replica_size() const noexcept {
  return schedule_->replica_size;
}
std::uint32_t Plan::waves() const noexcept {
  return schedule_->waves;
}
std::uint64_t Plan::window() const noexcept {
  return schedule_->window;
}
Order Plan::order() const noexcept {
  return schedule_->order;
}

Assignment Plan::assignment() const noexcept {
  return schedule_->assignment;
}
const std::string& Plan::assignment_reason() const noexcept {
  return schedule_->assignment_reason;
}
std::uint64_t Plan::hash() const noexcept {
  return schedule_->hash;
}
const Catalog& Plan::catalog() const noexcept {
  return schedule_->catalog;
}
std::uint64_t Plan::needed_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < schedule_->cuts.size(); ++i) {
    if (plan::is_read(*schedule_, i)) bytes += schedule_->catalog.tensors()[i].bytes;
  }
  return bytes;
}
const std::vector<Target>& Plan::targets() const noexcept {
  return schedule_->targets;
}
const std::vector<RankSummary>& Plan::ranks() const noexcept {
  return schedule_->ranks;
}
std::vector<std::string> Plan::warnings() const {
  return plan::warnings_of(*schedule_);
}
void Plan::prove() const try { plan::prove(*schedule_); } catch (const Error& error) {
  rethrow_with_file(error.record(), schedule_->catalog);
}

std::uint32_t replica_size(std::uint32_t world, const PlanOptions& options) {
  if (world == 0) throw ConfigError("the world size must be at least 1");
  if (options.replicas == 0) throw ConfigError("the number of replicas must be at least 1");
  if (world % options.replicas != 0) {
    throw ConfigError(core::plural(world, "rank") + " cannot be " +
                      core::plural(options.replicas, "replica") +
                      " of equal size: the number of ranks must be a multiple of that of replicas");
  }
  return world / options.replicas;
}

Plan make_plan(Catalog catalog, std::vector<Target> targets, std::uint32_t world,
               const PlanOptions& given) {
  PlanOptions options = given;
  if (options.window == 0) options.window = core::defaults_on(options.site.device).window;
  const auto schedule = std::make_shared<Schedule>();
  schedule->catalog = std::move(catalog);
  schedule->targets = std::move(targets);
  schedule->order = options.order;
  schedule->world = world;
  schedule->replicas = options.replicas;
  schedule->replica_size = replica_size(world, options);
  try {
    check_arguments(*schedule, options);
    cut(*schedule, options);
    fill_within(*schedule, options);
  } catch (const Error& error) {
    rethrow_with_file(error.record(), schedule->catalog);
  }
  schedule->hash = plan::hash_of(*schedule);
  return Plan(schedule);
}

Plan make_plan(Catalog catalog, std::vector<Placement> placements, std::uint32_t world,
               const PlanOptions& options) {
  if (placements.size() != catalog.tensors().size()) {
    throw ConfigError("there must be one placement per tensor");
  }
  return make_plan(std::move(catalog), stored_targets(std::move(placements)), world, options);
}

}  // namespace safeshuffle
