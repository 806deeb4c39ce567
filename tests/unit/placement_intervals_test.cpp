// placement: what one rank keeps of a cut axis, against an element-by-element oracle.
#include <algorithm>
#include <set>

#include "safeshuffle/error.hpp"
#include "safeshuffle/placement.hpp"

#include "support/catch.hpp"
#include "support/placement.hpp"

using namespace safeshuffle;

namespace {

using Ranks = std::vector<std::uint32_t>;

/// Which ranks of `group` have unit `unit`, found by asking each of them.
Ranks owners(const Sharing& sharing, std::uint64_t unit, const Ranks& group) {
  const std::uint64_t world = group.size();
  const bool even = sharing.units % world == 0;
  const bool shared = !even && sharing.replicate && world % sharing.units == 0;
  const std::uint64_t each = (sharing.units + world - 1) / world;
  Ranks result;
  for (std::uint64_t r = 0; r < world; ++r) {
    const bool mine = shared ? r * sharing.units / world == unit : unit / each == r;
    if (mine) result.push_back(group[r]);
  }
  return result;
}

Ranks owners_in_unit(const Split& split, std::uint64_t offset, const Ranks& group) {
  for (const Part& part : split.parts) {
    if (offset < part.length) {
      return owners(part.sharing, offset / (part.length / part.sharing.units), group);
    }
    offset -= part.length;
  }
  return group;
}

Ranks owners_of_element(const Split& split, std::uint64_t extent, std::uint64_t element,
                        const Ranks& world) {
  const std::uint64_t unit = extent / split.sharing.units;
  const Ranks group = owners(split.sharing, element / unit, world);
  return group.size() == 1 ? group : owners_in_unit(split, element % unit, group);
}

Ranks everyone(std::uint32_t world) {
  Ranks ranks;
  for (std::uint32_t r = 0; r < world; ++r) ranks.push_back(r);
  return ranks;
}

std::vector<std::uint64_t> expected_elements(const Split& split, std::uint64_t extent,
                                             std::uint32_t rank, std::uint32_t world) {
  std::vector<std::uint64_t> elements;
  for (std::uint64_t e = 0; e < extent; ++e) {
    const Ranks ranks = owners_of_element(split, extent, e, everyone(world));
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) elements.push_back(e);
  }
  return elements;
}

std::vector<Interval> intervals(const Split& split, std::uint64_t extent, std::uint32_t rank,
                                std::uint32_t world) {
  std::vector<Interval> out;
  append_intervals(split, extent, rank, world, out);
  return out;
}

std::vector<std::uint64_t> elements(const std::vector<Interval>& list) {
  std::vector<std::uint64_t> result;
  for (const Interval& interval : list) {
    for (std::uint64_t i = 0; i < interval.length; ++i) result.push_back(interval.begin + i);
  }
  return result;
}

bool canonical(const std::vector<Interval>& list) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].length == 0) return false;
    if (i > 0 && list[i - 1].begin + list[i - 1].length >= list[i].begin) return false;
  }
  return true;
}

/// Checks every rank against the oracle, and that no element is lost.
void check_split(const Split& split, std::uint64_t extent, std::uint32_t world) {
  CAPTURE(extent, world, split.sharing.units);
  std::set<std::uint64_t> all;
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    const auto mine = intervals(split, extent, rank, world);
    CHECK(canonical(mine));
    CHECK(elements(mine) == expected_elements(split, extent, rank, world));
    for (const std::uint64_t e : elements(mine)) all.insert(e);
  }
  CHECK(all.size() == extent);
}

Split plain(Sharing sharing) {
  return {0, sharing, {}};
}

std::uint64_t total_kept(const Split& split, std::uint64_t extent, std::uint32_t world) {
  std::uint64_t total = 0;
  for (std::uint32_t r = 0; r < world; ++r)
    total += elements(intervals(split, extent, r, world)).size();
  return total;
}

}  // namespace

TEST_CASE("an even cut is a partition in rank order", "[placement]") {
  for (std::uint32_t world = 1; world <= 8; ++world) {
    const Split split = plain({.units = world * 3ULL});
    const std::uint64_t extent = world * 12ULL;
    check_split(split, extent, world);
    CHECK(total_kept(split, extent, world) == extent);
    CHECK(intervals(split, extent, world - 1, world) == std::vector<Interval>{{extent - 12, 12}});
  }
}

TEST_CASE("an uneven cut leaves the last ranks short or empty", "[placement]") {
  for (std::uint32_t world = 1; world <= 8; ++world) {
    for (std::uint64_t units = 1; units <= 20; ++units) {
      const Split split = plain({.units = units, .uneven = true});
      check_split(split, units * 2, world);
      CHECK(total_kept(split, units * 2, world) == units * 2);
    }
  }
  const Split split = plain({.units = 3, .uneven = true});
  CHECK(intervals(split, 3, 2, 8) == std::vector<Interval>{{2, 1}});
  CHECK(intervals(split, 3, 3, 8).empty());
}

TEST_CASE("KV heads are shared by sub-groups of ranks", "[placement]") {
  const Split split = plain({.units = 2, .replicate = true});
  for (const std::uint32_t world : {1U, 2U, 4U, 6U, 8U}) check_split(split, 10, world);
  CHECK(intervals(split, 10, 3, 8) == std::vector<Interval>{{0, 5}});
  CHECK(intervals(split, 10, 4, 8) == std::vector<Interval>{{5, 5}});
  CHECK_THROWS_AS(intervals(split, 10, 0, 3), PlanError);
}

TEST_CASE("a fused tensor is cut part by part, in storage order", "[placement]") {
  const Split split{0,
                    {.units = 1, .replicate = true},
                    {{8, {.units = 4}},
                     {4, {.units = 2, .replicate = true}},
                     {4, {.units = 2, .replicate = true}}}};
  for (const std::uint32_t world : {1U, 2U, 4U}) check_split(split, 16, world);
  CHECK(intervals(split, 16, 1, 4) == std::vector<Interval>{{2, 2}, {8, 2}, {12, 2}});
  // The last query rows touch the first key rows, so they are one interval.
  CHECK(intervals(split, 16, 0, 1) == std::vector<Interval>{{0, 16}});
  CHECK(intervals({0,
                   {.units = 1, .replicate = true},
                   {{4, {.units = 4}}, {4, {.units = 1, .replicate = true}}}},
                  8, 3, 4) == std::vector<Interval>{{3, 5}});
}

TEST_CASE("parts of shared units: whole units first, then parts inside one", "[placement]") {
  const Split split{0,
                    {.units = 2, .replicate = true},
                    {{12, {.units = 4}},
                     {3, {.units = 1, .replicate = true}},
                     {3, {.units = 1, .replicate = true}}}};
  for (const std::uint32_t world : {1U, 2U, 4U, 8U}) check_split(split, 36, world);
  CHECK(intervals(split, 36, 1, 2) == std::vector<Interval>{{18, 18}});
  CHECK(intervals(split, 36, 2, 4) == std::vector<Interval>{{18, 6}, {30, 6}});
}

TEST_CASE("uneven parts", "[placement]") {
  const Sharing uneven{.units = 5, .uneven = true};
  const Split split{0, {.units = 1, .replicate = true}, {{5, uneven}, {5, uneven}}};
  for (std::uint32_t world = 1; world <= 8; ++world) check_split(split, 10, world);
}

TEST_CASE("what was collected before is kept and not joined", "[placement]") {
  std::vector<Interval> out{{0, 4}};
  append_intervals(plain({.units = 2}), 8, 1, 2, out);
  CHECK(out == std::vector<Interval>{{0, 4}, {4, 4}});
}

TEST_CASE("an empty axis has nothing to share", "[placement]") {
  CHECK(intervals(plain({.units = 0}), 0, 1, 4).empty());
  CHECK(intervals(plain({.units = 3}), 0, 1, 4).empty());
}

TEST_CASE("impossible cuts are plan errors", "[placement]") {
  CHECK_THROWS_AS(intervals(plain({.units = 10}), 10, 0, 4), PlanError);
  CHECK_THROWS_AS(intervals(plain({.units = 3}), 10, 0, 3), PlanError);
  CHECK_THROWS_AS(intervals(plain({.units = 0}), 10, 0, 3), PlanError);
  CHECK_THROWS_AS(intervals(plain({.units = 4}), 4, 2, 2), PlanError);
  CHECK_THROWS_AS(intervals(plain({.units = 4}), 4, 0, 0), PlanError);
  const Split short_parts{0, {.units = 1, .replicate = true}, {{4, {.units = 4}}}};
  CHECK_THROWS_AS(intervals(short_parts, 8, 0, 2), PlanError);
  constexpr std::uint64_t max = ~std::uint64_t{0};
  const Split huge{0, {.units = 1, .replicate = true}, {{max, {.units = 1}}, {9, {.units = 1}}}};
  CHECK_THROWS_AS(intervals(huge, 8, 0, 2), PlanError);
}

TEST_CASE("extents near 2^64 do not wrap", "[placement]") {
  constexpr std::uint64_t max = ~std::uint64_t{0};
  const Split split = plain({.units = max, .uneven = true});
  CHECK(intervals(split, max, 0, 2) == std::vector<Interval>{{0, max / 2 + 1}});
  CHECK(intervals(split, max, 1, 2) == std::vector<Interval>{{max / 2 + 1, max / 2}});
  CHECK(intervals(plain({.units = 3, .uneven = true}), 3, 4'000'000'000U, 4'294'967'295U).empty());
}

TEST_CASE("who holds what, and in which shape", "[placement]") {
  using Kind = Placement::Kind;
  const TensorInfo info = testing::tensor("w", {4, 6});
  CHECK(holds({Kind::replicated, {}, 0}, 3));
  CHECK(holds({Kind::sharded, {}, 0}, 3));
  CHECK(holds({Kind::single, {}, 3}, 3));
  CHECK_FALSE(holds({Kind::single, {}, 3}, 2));
  CHECK_FALSE(holds({Kind::dropped, {}, 0}, 0));
  CHECK(shard_shape(info.shape, {}, 0, 2) == Shape{4, 6});
  const Placement even{Kind::sharded, {1, {.units = 6}, {}}, 0};
  CHECK(shard_shape(info.shape, even, 1, 3) == Shape{4, 2});
  const Placement uneven{Kind::sharded, {0, {.units = 4, .uneven = true}, {}}, 0};
  CHECK(shard_shape(info.shape, uneven, 7, 8) == Shape{0, 6});
}
