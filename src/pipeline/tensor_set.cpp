#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"

#include "core/name_order.hpp"
#include "core/tensor_bytes.hpp"
#include "pipeline/tensor_state.hpp"
#include "plan/arena.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle {
namespace {

/// A target that a rank holds, under one of its names.
struct Named {
  std::string_view name;
  std::uint32_t target = 0;
};

std::vector<Named> names_held(const plan::Schedule& schedule, std::uint32_t shard) {
  std::vector<Named> names;
  names.reserve(schedule.targets.size());
  for (std::uint32_t i = 0; i < schedule.targets.size(); ++i) {
    const Target& target = schedule.targets[i];
    if (target.parts || !holds(target.placement, shard)) continue;
    names.push_back({name_of(target, schedule.catalog), i});
    if (!target.composition) continue;
    for (const std::string& alias : target.composition->aliases) names.push_back({alias, i});
  }
  return names;
}

std::size_t count_extents(const plan::Schedule& schedule, const std::vector<Named>& names) {
  std::size_t extents = 0;
  for (const Named& named : names) {
    extents += shape_of(schedule.targets[named.target], schedule.catalog).size();
  }
  return extents;
}

/// Makes the views of one rank. There may be a million of them, made when memory is at its peak:
/// all shapes share one allocation, and views are made in their final order.
class ViewMaker {
 public:
  ViewMaker(TensorSet::State& state, std::uint32_t shard)
      : state_(state), schedule_(state.plan.schedule()), shard_(shard) {}

  void make() {
    const std::vector<Named> names = names_held(schedule_, shard_);
    const std::vector<std::uint64_t> offsets = plan::arena_offsets(schedule_, state_.rank);
    state_.extents.reserve(count_extents(schedule_, names));
    state_.views.reserve(names.size());
    const auto name_at = [&](std::uint32_t i) { return names[i].name; };
    for (const std::uint32_t i : core::NameSort(name_at).order(names.size())) {
      append(names[i], offsets[names[i].target]);
    }
  }

 private:
  void append(const Named& named, std::uint64_t offset) {
    const Target& target = schedule_.targets[named.target];
    const Shape shape = shard_shape(shape_of(target, schedule_.catalog), target.placement, shard_,
                                    schedule_.replica_size);
    const DType dtype = schedule_.dtypes[target.tensor];
    state_.views.push_back({named.name, dtype, keep(shape),
                            offset == plan::not_held ? nullptr : state_.arena.get() + offset,
                            core::tensor_bytes(shape, dtype), named.target});
  }

  std::span<const std::uint64_t> keep(const Shape& shape) {
    state_.extents.insert(state_.extents.end(), shape.begin(), shape.end());
    return std::span(state_.extents).last(shape.size());
  }

  TensorSet::State& state_;
  const plan::Schedule& schedule_;
  const std::uint32_t shard_;
};

}  // namespace

namespace pipeline {

std::shared_ptr<TensorSet::State> make_state(const Plan& plan, std::uint32_t rank,
                                             std::shared_ptr<device::Device> device,
                                             std::shared_ptr<std::byte> arena) {
  auto state = std::make_shared<TensorSet::State>(
      TensorSet::State{plan, rank, std::move(device), std::move(arena), {}, {}, {}});
  ViewMaker(*state, plan::shard_index(plan.schedule(), rank)).make();
  return state;
}

TensorSet with_tensor(const TensorSet& filled, DType dtype, const Shape& shape) {
  const auto owner = std::static_pointer_cast<const TensorSet::State>(filled.owner());
  auto state = std::make_shared<TensorSet::State>(*owner);
  state->extents = shape;
  const std::string& name = state->plan.catalog().tensors().front().name;
  state->views.assign(
      1, {name, dtype, state->extents, state->arena.get(), core::tensor_bytes(shape, dtype), 0});
  return TensorSet(std::move(state));
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
