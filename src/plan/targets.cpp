#include "plan/targets.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_set>

#include "safeshuffle/error.hpp"

#include "core/arithmetic.hpp"
#include "core/glob.hpp"
#include "core/tensor_bytes.hpp"
#include "core/text.hpp"

namespace safeshuffle::plan {
namespace {

class TargetCheck {
 public:
  TargetCheck(const Catalog& catalog, const Target& target, std::uint32_t world)
      : tensors_(catalog.tensors()), target_(target), world_(world) {}

  void run() const {
    if (target_.tensor >= tensors_.size()) fail("it is filled from an unknown tensor");
    if (target_.composition) check_composition(*target_.composition);
    if (target_.parts) check_parts(*target_.parts);
    const Placement& placement = target_.placement;
    if (placement.kind == Placement::Kind::single && placement.rank >= world_) {
      fail("it is placed on rank " + std::to_string(placement.rank) + ", but the last rank is " +
           std::to_string(world_ - 1));
    }
    const Shape& shape = target_.composition ? target_.composition->shape : stored().shape;
    const bool is_split = placement.kind == Placement::Kind::sharded && !target_.parts;
    if (is_split && placement.split.axis >= shape.size()) {
      fail("it is split along axis " + std::to_string(placement.split.axis) + ", but has " +
           core::plural(shape.size(), "dimension"));
    }
  }

  /// Of the whole target, as stored.
  std::uint64_t bits_of() const {
    const Shape& shape = target_.composition ? target_.composition->shape : stored().shape;
    const std::optional<std::uint64_t> count = core::tensor_bits(stored().dtype, shape);
    if (!count) fail("it has more bytes than can be counted");
    if (*count % 8 != 0) fail("it ends inside a byte");
    return *count;
  }

  [[noreturn]] void fail(std::string cause) const {
    std::string name = target_.composition ? target_.composition->name : std::string();
    if (name.empty() && target_.tensor < tensors_.size()) name = tensors_[target_.tensor].name;
    throw PlanError(ErrorRecord{.tensor = std::move(name), .cause = std::move(cause)});
  }

 private:
  const TensorInfo& stored() const { return tensors_[target_.tensor]; }

  void check_parts(const RankParts& parts) const {
    if (target_.composition) fail("it fills lent memory, but is composed");
    if (stored().bytes == 0 || stored().bytes % parts.row_bytes != 0) {
      fail("it does not have whole rows of what ranks need");
    }
    if (!has_kind(parts)) fail("its placement is not what ranks need of it");
  }

  // Whether the placement says the same.
  bool has_kind(const RankParts& parts) const {
    const auto& columns = parts.columns;
    const auto holders = columns.size() - static_cast<std::size_t>(std::ranges::count(
                                              columns, std::uint64_t{0}, &KeptColumns::row_bytes));
    switch (target_.placement.kind) {
      case Placement::Kind::replicated:
        return holders != 0 && std::ranges::count(columns, columns.front()) == world_;
      case Placement::Kind::single:
        return holders == 1 && target_.placement.rank < world_ &&
               columns[target_.placement.rank].row_bytes != 0;
      case Placement::Kind::sharded:
        return true;
      case Placement::Kind::dropped:
        break;
    }
    return false;
  }

  void check_composition(const Composition& composition) const {
    if (composition.axis >= composition.shape.size()) fail("it has no such axis to compose along");
    const std::uint64_t extent = composition.shape[composition.axis];
    std::uint64_t end = 0;
    for (const Fill& fill : composition.fills) {
      if (fill.target_begin != end) fail("its parts leave a gap, or overlap");
      if (fill.length == 0) fail("one of its parts is empty");
      if (fill.length > extent - end) fail("its parts are more than all of it");
      end += fill.length;
      if (fill.tensor != Fill::zeros) check_fill(composition, fill);
    }
    if (end != extent) fail("its parts are not all of it");
    if (std::ranges::none_of(composition.fills,
                             [&](const Fill& fill) { return fill.tensor == target_.tensor; })) {
      fail("it is not filled from the tensor that it is said to be");
    }
  }

  void check_fill(const Composition& composition, const Fill& fill) const {
    if (fill.tensor >= tensors_.size()) fail("it is filled from an unknown tensor");
    const TensorInfo& tensor = tensors_[fill.tensor];
    if (tensor.dtype != tensors_[target_.tensor].dtype) {
      fail("'" + tensor.name + "' has another type than '" + tensors_[target_.tensor].name + "'");
    }
    Shape shape = tensor.shape;
    if (shape.size() != composition.shape.size()) {
      fail("'" + tensor.name + "' has another number of dimensions");
    }
    const std::uint64_t extent = shape[composition.axis];
    if (fill.length > extent || fill.source_begin > extent - fill.length) {
      fail("it needs more of '" + tensor.name + "' than there is");
    }
    shape[composition.axis] = composition.shape[composition.axis];
    if (shape != composition.shape) fail("'" + tensor.name + "' has another shape");
  }

  std::span<const TensorInfo> tensors_;
  const Target& target_;
  std::uint32_t world_;
};

bool are_in_row(const KeptColumns& kept, std::uint64_t row_bytes) {
  std::uint64_t end = 0;
  for (const Columns& interval : kept.columns) {
    if (interval.begin < end || interval.begin >= interval.end) return false;
    end = interval.end;
  }
  KeptColumns summed{kept.columns, {}, 0};
  summed.sum_up();
  return end <= row_bytes && summed == kept;
}

bool are_possible(const RankParts& parts, std::uint32_t world) {
  return parts.row_bytes != 0 && parts.columns.size() == world &&
         std::ranges::all_of(parts.columns, [&](const KeptColumns& kept) {
           return are_in_row(kept, parts.row_bytes);
         });
}

// Either all targets fill lent memory, or none does. What they share is examined once.
void check_all_parts(const Catalog& catalog, std::span<const Target> targets, std::uint32_t world) {
  std::unordered_set<const RankParts*> known{nullptr};
  for (const Target& target : targets) {
    const TargetCheck check(catalog, target, world);
    if (!target.parts != !targets.front().parts) check.fail("not all targets fill lent memory");
    if (!known.insert(target.parts.get()).second || are_possible(*target.parts, world)) continue;
    check.fail("it cannot be divided into what ranks need");
  }
}

// Tensors that engines take in the type that their file has: scales of quantised layers, and
// parameters that are used in F32 whatever the model's type is (as in vLLM 0.32).
constexpr std::array<std::string_view, 9> kept_leaves{"weight_scale",
                                                      "weight_scale_inv",
                                                      "weight_scale_2",
                                                      "weight_global_scale",
                                                      "input_scale",
                                                      "input_global_scale",
                                                      "input_scale_ub",
                                                      "A_log",
                                                      "e_score_correction_bias"};

// `patterns` as those of Selection.
bool keeps_type(const TensorInfo& tensor, const std::vector<std::string>& patterns) {
  const std::string_view leaf = std::string_view(tensor.name).substr(tensor.name.rfind('.') + 1);
  if (std::ranges::find(kept_leaves, leaf) != kept_leaves.end()) return true;
  return std::ranges::any_of(patterns, [&](const std::string& pattern) {
    return core::matches_glob(pattern, tensor.name);
  });
}

// Ranks that have a tensor under a name: one, or all.
struct Holding {
  static constexpr std::uint32_t all = std::numeric_limits<std::uint32_t>::max();

  std::size_t name_hash = 0;
  std::string_view name;
  std::uint32_t rank = all;
  auto operator<=>(const Holding&) const = default;
};

std::vector<Holding> holdings(const Catalog& catalog, std::span<const Target> targets) {
  std::vector<Holding> list;
  list.reserve(targets.size());
  for (const Target& target : targets) {
    const Placement& placement = target.placement;
    if (placement.kind == Placement::Kind::dropped) continue;
    const auto add = [&](std::string_view name) {
      list.push_back({std::hash<std::string_view>()(name), name,
                      placement.kind == Placement::Kind::single ? placement.rank : Holding::all});
    };
    add(name_of(target, catalog));
    if (!target.composition) continue;
    for (const std::string& alias : target.composition->aliases) add(alias);
  }
  return list;
}

// Names are usually unique: then so are their hashes, which are sorted faster.
bool have_unique_hashes(const std::vector<Holding>& holdings) {
  std::vector<std::size_t> hashes;
  hashes.reserve(holdings.size());
  for (const Holding& holding : holdings) hashes.push_back(holding.name_hash);
  std::ranges::sort(hashes);
  return std::ranges::adjacent_find(hashes) == hashes.end();
}

}  // namespace

void check_targets(const Catalog& catalog, std::span<const Target> targets, std::uint32_t world) {
  check_all_parts(catalog, targets, world);
  std::uint64_t total_bits = 0;
  for (const Target& target : targets) {
    const TargetCheck check(catalog, target, world);
    check.run();
    const auto sum = core::checked_add(total_bits, check.bits_of());
    if (!sum) check.fail("with the targets before, it has more bytes than can be counted");
    total_bits = *sum;
  }
}

void check_names(const Catalog& catalog, std::span<const Target> targets) {
  std::vector<Holding> list = holdings(catalog, targets);
  if (have_unique_hashes(list)) return;
  std::ranges::sort(list);
  const auto collide = [](const Holding& a, const Holding& b) {
    return a.name == b.name && (a.rank == b.rank || b.rank == Holding::all);
  };
  const auto twin = std::ranges::adjacent_find(list, collide);
  if (twin == list.end()) return;
  const std::uint32_t rank = twin->rank == Holding::all ? 0 : twin->rank;
  throw PlanError(ErrorRecord{
      .tensor = std::string(twin->name),
      .cause = "rank " + std::to_string(rank) + " would hold two tensors of this name"});
}

std::vector<Use> uses_of_targets(std::span<const Target> targets) {
  std::vector<Use> uses;
  uses.reserve(targets.size());
  for (std::uint32_t i = 0; i < targets.size(); ++i) {
    const Target& target = targets[i];
    if (target.placement.kind == Placement::Kind::dropped) continue;
    if (!target.composition) {
      uses.push_back({target.tensor, i, 0});
      continue;
    }
    const std::vector<Fill>& fills = target.composition->fills;
    for (std::uint32_t fill = 0; fill < fills.size(); ++fill) {
      if (fills[fill].tensor != Fill::zeros) uses.push_back({fills[fill].tensor, i, fill});
    }
  }
  const auto key = [](const Use& use) { return std::tuple(use.tensor, use.target, use.fill); };
  if (!std::ranges::is_sorted(uses, {}, key)) std::ranges::sort(uses, {}, key);
  return uses;
}

std::vector<std::uint32_t> first_uses(std::span<const Use> uses, std::size_t tensors) {
  std::vector<std::uint32_t> first(tensors + 1);
  for (const Use& use : uses) ++first[use.tensor + 1];
  for (std::size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
  return first;
}

DType loaded_dtype(const TensorInfo& tensor, const PlanOptions& options) {
  const bool kept = options.dtype == DTypePolicy::keep || keeps_type(tensor, options.keep_dtype);
  return kept ? tensor.dtype : converted(tensor.dtype, options.dtype);
}

}  // namespace safeshuffle::plan
