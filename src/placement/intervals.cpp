// What one rank keeps of a split axis.
#include <algorithm>
#include <optional>
#include <string>

#include "safeshuffle/error.hpp"
#include "safeshuffle/placement.hpp"

#include "core/arithmetic.hpp"
#include "core/text.hpp"
#include "placement/rule.hpp"

namespace safeshuffle {
namespace {

using core::plural;

/// The units one rank holds. `sharers` ranks hold them together; this one is number `index` of
/// them.
struct Share {
  std::uint64_t begin = 0;
  std::uint64_t count = 0;
  std::uint32_t sharers = 1;
  std::uint32_t index = 0;
};

/// A range of an axis to be distributed, and its name in messages.
struct Range {
  Interval interval;
  std::uint32_t axis = 0;
  std::optional<std::size_t> part;  ///< index of a part; none: the axis itself
};

/// One rank of a group.
struct Member {
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
};

std::string describe_range(const Range& range) {
  const std::string axis = "axis " + std::to_string(range.axis);
  const std::string what =
      range.part ? "part " + std::to_string(*range.part) + " of " + axis : axis;
  return what + " (" + plural(range.interval.length, "element") + ")";
}

[[noreturn]] void fail_units(const Range& range, std::uint64_t units) {
  throw PlanError(describe_range(range) + " cannot be divided into " + plural(units, "equal unit") +
                  "; check the rule's \"units\" and the counts in config.json");
}

[[noreturn]] void fail_share(const Range& range, std::uint64_t units, std::uint32_t world) {
  const std::string what =
      units == range.interval.length ? "" : ", split into " + plural(units, "unit") + ",";
  throw PlanError(ErrorRecord{
      .code = placement::other_worlds_may_work,
      .cause = describe_range(range) + what + " does not divide among " + plural(world, "rank")});
}

std::uint64_t unit_length(const Range& range, std::uint64_t units) {
  if (units == 0 || range.interval.length % units != 0) fail_units(range, units);
  return range.interval.length / units;
}

Share uneven_share(std::uint64_t units, Member member) {
  const std::uint64_t each = core::ceil_div(units, member.world);
  const std::uint64_t begin = member.rank > units / each ? units : member.rank * each;
  return {.begin = begin, .count = std::min(each, units - begin)};
}

Share share(const Range& range, const Sharing& sharing, Member member) {
  const auto [rank, world] = member;
  const std::uint64_t units = sharing.units;
  if (units % world == 0) return {.begin = rank * (units / world), .count = units / world};
  if (sharing.replicate && world % units == 0) {
    const auto sharers = static_cast<std::uint32_t>(world / units);
    return {.begin = rank / sharers, .count = 1, .sharers = sharers, .index = rank % sharers};
  }
  if (sharing.uneven) return uneven_share(units, member);
  fail_share(range, units, world);
}

/// Collects intervals, joining adjacent ones; does not change what the vector had before.
class Collector {
 public:
  explicit Collector(std::vector<Interval>& out) : out_(out), first_(out.size()) {}

  void add(std::uint64_t begin, std::uint64_t length) {
    if (length == 0) return;
    if (out_.size() > first_ && out_.back().begin + out_.back().length == begin) {
      out_.back().length += length;
    } else {
      out_.push_back({begin, length});
    }
  }

 private:
  std::vector<Interval>& out_;
  std::size_t first_;
};

void add_part(const Range& range, const Sharing& sharing, Member member, Collector& out) {
  if (range.interval.length == 0) return;
  const std::uint64_t unit = unit_length(range, sharing.units);
  const Share mine = share(range, sharing, member);
  out.add(range.interval.begin + mine.begin * unit, mine.count * unit);
}

void add_parts(const Split& split, std::uint64_t begin, Member member, Collector& out) {
  for (std::size_t i = 0; i < split.parts.size(); ++i) {
    const Part& part = split.parts[i];
    add_part({{begin, part.length}, split.axis, i}, part.sharing, member, out);
    begin += part.length;
  }
}

void check_parts(const Split& split, std::uint64_t unit) {
  std::optional<std::uint64_t> total = 0;
  for (const Part& part : split.parts) {
    total = core::checked_add(*total, part.length);
    if (!total) break;
  }
  if (split.parts.empty() || total == unit) return;
  throw PlanError("the parts of axis " + std::to_string(split.axis) + " do not add up to the " +
                  plural(unit, "element") + " of one unit");
}

void check_member(Member member) {
  if (member.rank < member.world) return;
  throw PlanError("rank " + std::to_string(member.rank) + " is out of range for a group of " +
                  plural(member.world, "rank"));
}

std::uint64_t kept_extent(const Split& split, std::uint64_t extent, Member member) {
  std::vector<Interval> intervals;
  append_intervals(split, extent, member.rank, member.world, intervals);
  std::uint64_t total = 0;
  for (const Interval& interval : intervals) total += interval.length;
  return total;
}

[[noreturn]] void fail_packed(const Split& split, std::uint64_t boundary) {
  throw PlanError(
      ErrorRecord{.code = placement::other_worlds_may_work,
                  .cause = "axis " + std::to_string(split.axis) + " holds " +
                           plural(split.packing.extent, "element") + " of the layer in blocks of " +
                           std::to_string(split.packing.values) + ", and a rank's part ends at " +
                           std::to_string(boundary) + ", inside a block"});
}

/// What is stored of the layer's elements before `boundary`, the block that it parts included if
/// `up`.
std::uint64_t stored_before(const Split& split, std::uint64_t extent, std::uint64_t boundary,
                            bool up) {
  const Packing& packing = split.packing;
  if (boundary == packing.extent) return extent;
  const std::uint64_t blocks = boundary / packing.values;
  const bool parted = boundary % packing.values != 0;
  if (parted && !packing.covering) fail_packed(split, boundary);
  return std::min(extent, (blocks + (parted && up ? 1 : 0)) * packing.stored);
}

void append_packed(const Split& split, std::uint64_t extent, Member member,
                   std::vector<Interval>& out) {
  Split counted = split;
  counted.packing = {};
  std::vector<Interval> of_layer;
  append_intervals(counted, split.packing.extent, member.rank, member.world, of_layer);
  Collector collector(out);
  std::uint64_t kept = 0;  // up to there, since parts may share a block
  for (const Interval& interval : of_layer) {
    const std::uint64_t begin = stored_before(split, extent, interval.begin, false);
    const std::uint64_t end = stored_before(split, extent, interval.begin + interval.length, true);
    kept = std::max(kept, begin);
    if (end > kept) collector.add(kept, end - kept);
    kept = std::max(kept, end);
  }
}

}  // namespace

bool holds(const Placement& placement, std::uint32_t rank) noexcept {
  switch (placement.kind) {
    case Placement::Kind::replicated:
    case Placement::Kind::sharded:
      return true;
    case Placement::Kind::single:
      return placement.rank == rank;
    case Placement::Kind::dropped:
      break;
  }
  return false;
}

void append_intervals(const Split& split, std::uint64_t extent, std::uint32_t rank,
                      std::uint32_t world, std::vector<Interval>& out) {
  check_member({rank, world});
  if (extent == 0) return;
  if (split.packing.extent != 0) return append_packed(split, extent, {rank, world}, out);
  const Range axis{{0, extent}, split.axis, std::nullopt};
  const std::uint64_t unit = unit_length(axis, split.sharing.units);
  check_parts(split, unit);
  const Share mine = share(axis, split.sharing, {rank, world});
  Collector collector(out);
  if (mine.sharers > 1 && !split.parts.empty()) {
    add_parts(split, mine.begin * unit, {mine.index, mine.sharers}, collector);
  } else {
    collector.add(mine.begin * unit, mine.count * unit);
  }
}

Shape shard_shape(Shape shape, const Placement& placement, std::uint32_t rank,
                  std::uint32_t world) {
  if (placement.kind != Placement::Kind::sharded) return shape;
  std::uint64_t& extent = shape.at(placement.split.axis);
  extent = kept_extent(placement.split, extent, {rank, world});
  return shape;
}

}  // namespace safeshuffle
