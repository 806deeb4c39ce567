#include <algorithm>
#include <string>
#include <utility>

#include "safeshuffle/error.hpp"

#include "core/name_order.hpp"
#include "core/tensor_bytes.hpp"
#include "pipeline/tensor_state.hpp"
#include "plan/arena.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle {
namespace {

// One for each of its names.
void append_views(TensorView view, const Target& target, const Catalog& catalog,
                  std::vector<TensorView>& views) {
  view.name = name_of(target, catalog);
  views.push_back(view);
  if (!target.composition) return;
  for (const std::string& alias : target.composition->aliases) {
    view.name = alias;
    views.push_back(view);
  }
}

std::vector<TensorView> sorted_by_name(const std::vector<TensorView>& views) {
  const auto name_of = [&](std::uint32_t i) { return views[i].name; };
  std::vector<TensorView> sorted;
  sorted.reserve(views.size());
  for (const std::uint32_t i : core::NameSort(name_of).order(views.size())) {
    sorted.push_back(views[i]);
  }
  return sorted;
}

}  // namespace

namespace pipeline {

std::shared_ptr<TensorSet::State> make_state(const Plan& plan, std::uint32_t rank,
                                             std::shared_ptr<device::Device> device,
                                             std::shared_ptr<std::byte> arena) {
  const plan::Schedule& schedule = plan.schedule();
  auto state = std::make_shared<TensorSet::State>(
      TensorSet::State{plan, rank, std::move(device), std::move(arena), {}, {}, {}});
  state->shapes.resize(schedule.targets.size());
  const std::vector<std::uint64_t> offsets = plan::arena_offsets(schedule, rank);
  const std::uint32_t shard = plan::shard_index(schedule, rank);
  for (std::uint32_t i = 0; i < schedule.targets.size(); ++i) {
    const Target& target = schedule.targets[i];
    if (!holds(target.placement, shard)) continue;
    state->shapes[i] = shard_shape(shape_of(target, schedule.catalog), target.placement, shard,
                                   schedule.replica_size);
    const DType dtype = schedule.dtypes[target.tensor];
    append_views({{},
                  dtype,
                  state->shapes[i],
                  offsets[i] == plan::not_held ? nullptr : state->arena.get() + offsets[i],
                  core::tensor_bytes(state->shapes[i], dtype),
                  i},
                 target, schedule.catalog, state->views);
  }
  state->views = sorted_by_name(state->views);
  return state;
}

void check_group(const TensorSet& model, const Communicator& comm) {
  if (comm.size() == model.plan().world() && comm.rank() == model.rank()) return;
  throw ConfigError("the model was loaded by rank " + std::to_string(model.rank()) + " of " +
                    std::to_string(model.plan().world()) + ", not by rank " +
                    std::to_string(comm.rank()) + " of " + std::to_string(comm.size()));
}

}  // namespace pipeline

TensorSet::TensorSet(std::shared_ptr<const State> state) : state_(std::move(state)) {}

std::size_t TensorSet::size() const noexcept {
  return state_->views.size();
}
const TensorView* TensorSet::begin() const noexcept {
  return state_->views.data();
}
const TensorView* TensorSet::end() const noexcept {
  return begin() + size();
}
DeviceKind TensorSet::device() const noexcept {
  return state_->device->kind();
}
int TensorSet::ordinal() const noexcept {
  return state_->device->ordinal();
}
std::uint32_t TensorSet::rank() const noexcept {
  return state_->rank;
}

const Plan& TensorSet::plan() const noexcept {
  return state_->plan;
}
const Report& TensorSet::report() const noexcept {
  return state_->report;
}
std::shared_ptr<const void> TensorSet::owner() const noexcept {
  return state_;
}

const TensorView* TensorSet::find(std::string_view name) const noexcept {
  const TensorView* at = std::lower_bound(
      begin(), end(), name,
      [](const TensorView& view, std::string_view wanted) { return view.name < wanted; });
  return at != end() && at->name == name ? at : nullptr;
}

const TensorView& TensorSet::at(std::string_view name) const {
  const TensorView* view = find(name);
  if (view == nullptr) {
    throw ConfigError("rank " + std::to_string(state_->rank) + " holds no tensor '" +
                      std::string(name) + "'");
  }
  return *view;
}

void TensorSet::copy_to_host(const TensorView& view, std::span<std::byte> destination) const {
  if (destination.size() != view.bytes) {
    throw ConfigError("the destination has " + std::to_string(destination.size()) + " bytes, '" +
                      std::string(view.name) + "' has " + std::to_string(view.bytes));
  }
  if (view.bytes != 0) state_->device->copy_to_host(destination.data(), view.data, view.bytes);
}

}  // namespace safeshuffle
