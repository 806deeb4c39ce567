#include "placement/rule.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "core/arithmetic.hpp"
#include "core/text.hpp"
#include "placement/matcher.hpp"

namespace safeshuffle::placement {
namespace {

[[noreturn]] void fail_cut(const TensorInfo& tensor, const std::string& cause) {
  throw PlanError(ErrorRecord{.tensor = tensor.name,
                              .cause = "shape " + core::list_text(tensor.shape) + ": " + cause});
}

bool is_bias(const TensorInfo& tensor) {
  const std::string_view name = tensor.name;
  return tensor.shape.size() == 1 || name.substr(name.rfind('.') + 1) == "bias";
}

Sharing resolve(Sharing sharing, std::uint64_t extent) {
  if (sharing.units == per_element) sharing.units = extent;
  return sharing;
}

std::uint64_t total_size(const std::vector<PartRule>& parts) {
  std::uint64_t total = 0;
  for (const PartRule& part : parts) total += part.size;
  return total;
}

std::vector<Part> make_parts(const std::vector<PartRule>& rules, std::uint64_t unit) {
  std::vector<Part> parts;
  const std::uint64_t total = total_size(rules);
  for (const PartRule& rule : rules) {
    const std::uint64_t length = unit / total * rule.size;
    parts.push_back({length, resolve(rule.sharing, length)});
  }
  return parts;
}

/// The length of a unit, of which parts are fractions.
std::uint64_t unit_of(const TensorInfo& tensor, const Split& split, std::uint64_t total) {
  const std::uint64_t extent = tensor.shape[split.axis];
  const std::uint64_t units = split.sharing.units;
  if (units != 0 && extent % units == 0 && (extent / units) % total == 0) return extent / units;
  fail_cut(tensor,
           "axis " + std::to_string(split.axis) + " (" + std::to_string(extent) +
               " elements) is not " + std::to_string(units) + " × " + std::to_string(total) +
               " equal units, as the fused parts require; check the rule's \"parts\" and the "
               "counts in config.json");
}

/// The same split with as few parts as possible: only ranks that share a unit split its parts, and
/// if the only part divides among them, it is as if the axis consisted of the part's units. So what
/// is stored apart (q, k, v) can be joined.
void simplify(Split& split, std::uint32_t world) {
  const auto [units, uneven, replicate] = split.sharing;
  const bool shared = replicate && units % world != 0 && world % units == 0;
  if (!shared) return split.parts.clear();
  if (split.parts.size() != 1) return;
  const Part& part = split.parts.front();
  const bool divides = part.sharing.units != 0 && part.length % part.sharing.units == 0 &&
                       part.sharing.units % (world / units) == 0;
  if (!divides) return;
  split.sharing = {.units = units * part.sharing.units, .uneven = uneven};
  split.parts.clear();
}

Split make_split(const CutRule& cut, std::uint32_t axis, const TensorInfo& tensor,
                 std::uint32_t world) {
  const std::uint64_t extent = tensor.shape[axis];
  // A single rank keeps everything, and an empty axis has nothing to split, whatever the rule says.
  if (world == 1 || extent == 0) return {axis, {.units = extent}, {}};
  Split split{axis, resolve(cut.sharing, extent), {}};
  if (!cut.parts.empty()) {
    split.parts = make_parts(cut.parts, unit_of(tensor, split, total_size(cut.parts)));
    simplify(split, world);
  }
  return split;
}

/// Throws if the split is impossible. Without blocks, that does not depend on the rank.
void try_split(const Split& split, const TensorInfo& tensor, std::uint32_t world) {
  std::vector<Interval> ignored;
  const std::uint32_t ranks = split.packing.extent == 0 ? 1 : world;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    append_intervals(split, tensor.shape[split.axis], rank, world, ignored);
  }
}

constexpr std::uint32_t most_ranks_named = 64;

/// The numbers for which `works` does not throw PlanError.
std::string worlds_that_work(const std::function<void(std::uint32_t)>& works) {
  std::string worlds;
  for (std::uint32_t world = 1; world <= most_ranks_named; ++world) {
    try {
      works(world);
      worlds += (worlds.empty() ? "" : ", ") + std::to_string(world);
    } catch (const PlanError&) {
    }
  }
  return "; numbers of ranks that work: " + worlds;
}

/// The split among `world` ranks that `make` gives. Throws if it is impossible.
Split checked_split(const TensorInfo& tensor, std::uint32_t world,
                    const std::function<Split(std::uint32_t)>& make) {
  Split split = make(world);
  try {
    try_split(split, tensor, world);
  } catch (const PlanError& error) {
    const ErrorRecord& record = error.record();
    if (record.code != other_worlds_may_work) fail_cut(tensor, record.cause);
    fail_cut(tensor, record.cause + worlds_that_work([&](std::uint32_t other) {
                       try_split(make(other), tensor, other);
                     }));
  }
  return split;
}

/// See CutRule::uncut.
std::uint32_t turn_if_transposed(const CutRule& cut, std::uint32_t axis, const Shape& shape) {
  const auto last = static_cast<std::uint32_t>(shape.size() - 1);
  if (!cut.uncut || shape[axis] != *cut.uncut || shape.size() < 2) return axis;
  const std::uint32_t other = axis == last ? last - 1 : last;
  return shape[other] == *cut.uncut ? axis : other;
}

Placement apply_cut(const CutRule& cut, const TensorInfo& tensor, std::uint32_t world) {
  const Dim dim = is_bias(tensor) ? cut.bias : cut.weight;
  auto axis = resolve_axis(dim, tensor.shape.size());
  if (axis && !is_bias(tensor)) axis = turn_if_transposed(cut, *axis, tensor.shape);
  if (axis) {
    return {.kind = Placement::Kind::sharded,
            .split = checked_split(tensor, world, [&](std::uint32_t ranks) {
              return make_split(cut, *axis, tensor, ranks);
            })};
  }
  if (cut.strict && !tensor.shape.empty() && world > 1) {
    fail_cut(tensor,
             "the tensor has no dimension " + std::to_string(dim.value_or(0)) + " to split");
  }
  return {};
}

Placement apply_keep(const Keep& keep, const TensorInfo& tensor, std::uint32_t world) {
  if (keep.kind == Placement::Kind::single && keep.rank >= world) {
    fail_cut(tensor, "its rule places it on rank " + std::to_string(keep.rank) +
                         ", but the last rank is " + std::to_string(world - 1));
  }
  return {.kind = keep.kind, .split = {}, .rank = keep.rank};
}

Placement refuse(const Refusal& refusal, const TensorInfo& tensor, std::uint32_t world) {
  if (world == 1) return {};
  ErrorRecord record = refusal.reason;
  record.tensor = tensor.name;
  throw ConfigError(std::move(record));
}

void check_deal(const DealRule& deal, std::uint64_t experts, const TensorInfo& tensor,
                std::uint32_t world) {
  if (experts % world == 0 || deal.uneven) return;
  fail_cut(tensor, core::plural(experts, "expert") +
                       (experts < world ? " cannot be dealt to " : " do not divide among ") +
                       core::plural(world, "rank") + worlds_that_work([&](std::uint32_t other) {
                         if (experts % other != 0) throw PlanError("");
                       }));
}

/// One expert's tensor, named by its number.
Placement place_expert(const DealRule& deal, std::uint64_t expert, const TensorInfo& tensor,
                       std::uint32_t world) {
  if (world == 1) return {};
  if (!deal.experts) {
    throw ConfigError(
        ErrorRecord{.tensor = tensor.name,
                    .cause = "config.json does not give the number of experts (num_local_experts, "
                             "num_experts, n_routed_experts or moe_num_experts); write it as "
                             "\"count\" in the section \"experts\" of the rule file"});
  }
  if (expert >= *deal.experts) {
    fail_cut(tensor, "it belongs to expert " + std::to_string(expert) + ", counted from 0, of " +
                         core::plural(*deal.experts, "expert"));
  }
  check_deal(deal, *deal.experts, tensor, world);
  const std::uint64_t each = core::ceil_div(*deal.experts, world);
  return {.kind = Placement::Kind::single,
          .split = {},
          .rank = static_cast<std::uint32_t>(expert / each)};
}

/// All experts in one tensor.
Placement place_stack(const DealRule& deal, const TensorInfo& tensor, std::uint32_t world) {
  const std::uint64_t extent = tensor.shape.empty() ? 0 : tensor.shape.front();
  const std::uint64_t experts = deal.experts.value_or(extent);
  if (world > 1 && extent != 0) {
    if (extent % experts != 0) {
      fail_cut(tensor, "axis 0 (" + core::plural(extent, "element") + ") does not consist of " +
                           core::plural(experts, "equal expert"));
    }
    check_deal(deal, experts, tensor, world);
  }
  return apply_cut(
      {.weight = 0, .bias = 0, .sharing = {.units = experts, .uneven = deal.uneven}, .parts = {}},
      tensor, world);
}

}  // namespace

std::optional<std::uint32_t> resolve_axis(Dim dim, std::size_t rank) {
  if (!dim) return std::nullopt;
  const auto dimensions = static_cast<std::int64_t>(rank);
  const std::int64_t axis = *dim < 0 ? *dim + dimensions : *dim;
  if (axis < 0 || axis >= dimensions) return std::nullopt;
  return static_cast<std::uint32_t>(axis);
}

Placement apply(const Rule& rule, const TensorInfo& tensor, std::string_view below,
                std::uint32_t world) {
  if (const auto* keep = std::get_if<Keep>(&rule)) return apply_keep(*keep, tensor, world);
  if (const auto* cut = std::get_if<CutRule>(&rule)) return apply_cut(*cut, tensor, world);
  if (const auto* refusal = std::get_if<Refusal>(&rule)) return refuse(*refusal, tensor, world);
  const auto& deal = std::get<DealRule>(rule);
  const auto expert = leading_number(below);
  return expert ? place_expert(deal, *expert, tensor, world) : place_stack(deal, tensor, world);
}

Placement keep_together(Placement placement, const TensorInfo& tensor, std::uint64_t together,
                        std::uint32_t world) {
  if (placement.kind != Placement::Kind::sharded || world == 1) return placement;
  placement.split.packing = {tensor.shape[placement.split.axis], together, together};
  checked_split(tensor, world, [&](std::uint32_t) { return placement.split; });
  return placement;
}

Placement apply(const CutRule& cut, const TensorInfo& tensor, const StoredForm& form,
                std::uint32_t world) {
  if (world == 1) return apply_cut(cut, tensor, world);
  if (cut.strict) {
    fail_cut(tensor,
             "the rule names a dimension, and this tensor of a quantised layer may have others; "
             "use a style, or a key that ends in the tensor's own name");
  }
  const auto of_layer = resolve_axis(cut.weight, form.layer.size());
  const auto axis = std::ranges::find(form.axes, of_layer, &StoredAxis::of_layer);
  if (!of_layer || axis == form.axes.end()) return {};
  TensorInfo layer = tensor;
  layer.shape = form.layer;
  return {.kind = Placement::Kind::sharded,
          .split = checked_split(tensor, world, [&](std::uint32_t ranks) {
            Split split = make_split(cut, *of_layer, layer, ranks);
            split.axis = static_cast<std::uint32_t>(axis - form.axes.begin());
            split.packing = {form.layer[*of_layer], axis->values, axis->stored, cut.covering};
            return split;
          })};
}

}  // namespace safeshuffle::placement
