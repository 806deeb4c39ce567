#include "placement/join_shards.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "core/tensor_bytes.hpp"
#include "format/format_error.hpp"

namespace safeshuffle::placement {
namespace {

// The stored tensors of one name, in the order of files.
using Copies = std::vector<std::uint32_t>;

// In the order of the first copy of each.
std::vector<Copies> copies_by_name(const Catalog& catalog) {
  const std::span<const TensorInfo> tensors = catalog.tensors();
  std::vector<std::uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, {},
                           [&](std::uint32_t i) -> const std::string& { return tensors[i].name; });
  std::vector<Copies> all;
  for (const std::uint32_t i : order) {
    if (all.empty() || tensors[all.back().front()].name != tensors[i].name) all.emplace_back();
    all.back().push_back(i);
  }
  std::ranges::sort(all, {}, [](const Copies& copies) { return copies.front(); });
  return all;
}

class Joiner {
 public:
  Joiner(const Catalog& catalog, const ShardedState& state)
      : catalog_(catalog), tensors_(catalog.tensors()), state_(state) {}

  JoinedShards join() {
    std::vector<TensorInfo> whole;
    std::vector<Target> targets;
    for (const Copies& copies : copies_by_name(catalog_)) {
      Target target = join(copies);
      ++turn_;
      TensorInfo info = tensors_[copies.front()];
      if (target.composition) info.shape = target.composition->shape;
      info.bytes = core::tensor_bytes(info.shape, info.dtype);
      whole.push_back(std::move(info));
      targets.push_back(std::move(target));
    }
    const std::span<const FileInfo> files = catalog_.files();
    return {Catalog({files.begin(), files.end()}, std::move(whole)), std::move(targets)};
  }

 private:
  [[noreturn]] void fail(std::uint32_t tensor, std::string cause) const {
    format::raise_format(FormatErrc::bad_shard_record,
                         {.path = file_of(tensor), .tensor = tensors_[tensor].name},
                         std::move(cause));
  }

  const std::string& file_of(std::uint32_t tensor) const {
    return catalog_.files()[tensors_[tensor].file].path;
  }

  // Copies are all of a whole tensor if one is recorded as a shard: a rank may have all of it, and
  // the others nothing.
  Target join(const Copies& copies) const {
    const auto recorded = std::ranges::find_if(
        copies, [&](std::uint32_t copy) { return state_.shards[copy] != nullptr; });
    const std::uint32_t example = recorded == copies.end() ? copies.front() : *recorded;
    for (const std::uint32_t copy : copies) check_alike(example, copy);
    if (recorded == copies.end()) return {copies[turn_ % copies.size()], {}, nullptr, nullptr};
    const SavedShard& shard = *state_.shards[example];
    Composition composition{tensors_[example].name, {}, shard.shape, shard.axis, {}};
    composition.fills = without_repeats(fills_of(copies, composition));
    check_end(composition, copies.front());
    if (composition.fills.empty()) {
      fail(copies.front(), "it is recorded as a shard of a tensor that cannot be divided");
    }
    const std::uint32_t tensor = composition.fills.front().tensor;
    return {tensor, {}, std::make_shared<const Composition>(std::move(composition)), nullptr};
  }

  const Shape& whole_shape(std::uint32_t tensor) const {
    return state_.shards[tensor] ? state_.shards[tensor]->shape : tensors_[tensor].shape;
  }

  void check_alike(std::uint32_t a, std::uint32_t b) const {
    const SavedShard* first = state_.shards[a].get();
    const SavedShard* second = state_.shards[b].get();
    const bool alike = tensors_[a].dtype == tensors_[b].dtype && whole_shape(a) == whole_shape(b) &&
                       (first == nullptr || second == nullptr || first->axis == second->axis);
    if (!alike) fail(b, "it does not fit with the tensor of this name in " + file_of(a));
  }

  // What a copy is of the composition: a whole tensor, all of it.
  std::vector<Interval> intervals_of(std::uint32_t copy, const Composition& composition) const {
    if (state_.shards[copy]) return state_.shards[copy]->intervals;
    const std::uint64_t extent = composition.shape[composition.axis];
    return extent == 0 ? std::vector<Interval>{} : std::vector<Interval>{{0, extent}};
  }

  // In the order of their places; of those at one place, one rank's first, in turn.
  std::vector<Fill> fills_of(const Copies& copies, const Composition& composition) const {
    std::vector<Fill> fills;
    for (std::size_t i = 0; i < copies.size(); ++i) {
      const std::uint32_t copy = copies[(turn_ + i) % copies.size()];
      std::uint64_t passed = 0;
      for (const Interval& interval : intervals_of(copy, composition)) {
        fills.push_back({copy, passed, interval.begin, interval.length});
        passed += interval.length;
      }
    }
    std::ranges::stable_sort(fills, {}, &Fill::target_begin);
    return fills;
  }

  // What several ranks have is filled once. It need not be an interval of its own on each of them:
  // on some, it may follow what only they have.
  std::vector<Fill> without_repeats(const std::vector<Fill>& fills) const {
    std::vector<Fill> kept;
    std::uint64_t end = 0;
    for (Fill fill : fills) {
      if (fill.target_begin > end)
        fail(fill.tensor, "the shards in all files leave a gap before it");
      const std::uint64_t repeated = end - fill.target_begin;
      if (repeated >= fill.length) continue;
      fill.source_begin += repeated;
      fill.target_begin = end;
      fill.length -= repeated;
      end += fill.length;
      kept.push_back(fill);
    }
    return kept;
  }

  void check_end(const Composition& composition, std::uint32_t first) const {
    const std::uint64_t end = composition.fills.empty() ? 0
                                                        : composition.fills.back().target_begin +
                                                              composition.fills.back().length;
    if (end == composition.shape[composition.axis]) return;
    fail(first, "all shards together are not the whole tensor");
  }

  const Catalog& catalog_;
  std::span<const TensorInfo> tensors_;
  const ShardedState& state_;
  std::size_t turn_ = 0;
};

Target as_saved(const Catalog& catalog, const ShardedState& state, std::uint32_t tensor) {
  static const auto unknown = std::make_shared<const SavedShard>();
  Placement placement;
  placement.kind = Placement::Kind::single;
  placement.rank = state.rank_of_file[catalog.tensors()[tensor].file];
  return {tensor, std::move(placement), nullptr, state.recorded ? state.shards[tensor] : unknown};
}

}  // namespace

std::optional<SavedShard> shard_of(const Target& target, const Catalog& catalog, std::uint32_t rank,
                                   std::uint32_t world) {
  const Shape& shape = shape_of(target, catalog);
  if (shard_shape(shape, target.placement, rank, world) == shape) return std::nullopt;
  SavedShard shard{shape, target.placement.split.axis, {}};
  append_intervals(target.placement.split, shape[shard.axis], rank, world, shard.intervals);
  return shard;
}

JoinedShards join_shards(const Catalog& catalog, const ShardedState& state) {
  return Joiner(catalog, state).join();
}

std::vector<Target> targets_as_saved(const Catalog& catalog, const ShardedState& state) {
  std::vector<Target> targets;
  for (std::uint32_t i = 0; i < catalog.tensors().size(); ++i) {
    targets.push_back(as_saved(catalog, state, i));
  }
  return targets;
}

}  // namespace safeshuffle::placement
