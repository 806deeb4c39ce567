#include "plan/geometry.hpp"

#include <algorithm>
#include <unordered_map>

namespace safeshuffle::plan {
namespace {

std::uint64_t split_extent(const Schedule& schedule, const Target& target) {
  if (target.parts || target.placement.kind != Placement::Kind::sharded) return 0;
  return shape_of(target, schedule.catalog)[target.placement.split.axis];
}

bool same_composition(const Composition* a, const Composition* b) {
  if (a == nullptr || b == nullptr) return a == b;
  return a->axis == b->axis && a->shape == b->shape && a->fills.size() == b->fills.size();
}

// Usually one object, or different in their hashes.
bool same_parts(const RankParts* a, const RankParts* b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

// All that unpacking and arrives_in_place depend on.
bool same_use(const Schedule& schedule, const Use& a, const Use& b) {
  const Target& first = schedule.targets[a.target];
  const Target& second = schedule.targets[b.target];
  if (first.placement != second.placement ||
      split_extent(schedule, first) != split_extent(schedule, second) ||
      !same_composition(first.composition.get(), second.composition.get()) ||
      !same_parts(first.parts.get(), second.parts.get())) {
    return false;
  }
  if (!first.composition) return true;
  const Fill& of_first = first.composition->fills[a.fill];
  const Fill& of_second = second.composition->fills[b.fill];
  return of_first.source_begin == of_second.source_begin &&
         of_first.target_begin == of_second.target_begin && of_first.length == of_second.length;
}

std::size_t geometry_hash(const Schedule& schedule, std::uint32_t tensor) {
  const Cut& cut = schedule.cuts[tensor];
  const std::span<const Use> uses = uses_of(schedule, tensor);
  if (uses.empty()) return 0;
  const Placement& placement = placement_of(schedule, uses.front());
  const Fill* fill = fill_of(schedule, uses.front());
  const RankParts* parts = parts_of(schedule, tensor);
  std::uint64_t hash = cut.rows;
  for (const std::uint64_t value :
       {cut.row_bytes, placement.split.sharing.units, std::uint64_t{placement.rank},
        fill == nullptr ? 0 : fill->target_begin + 1, parts == nullptr ? 0 : parts->hash,
        static_cast<std::uint64_t>(placement.kind),
        static_cast<std::uint64_t>(schedule.dtypes[tensor])}) {
    hash = mixed(hash, value);
  }
  return hash;
}

// Segments of the first line: its ends, and those around the columns of ranks.
class Representatives {
 public:
  explicit Representatives(const Segments& segments) : segments_(segments) {
    if (segments.count() == 0) return;
    // The last is shorter.
    indices_ = {0, last() - std::min<std::uint64_t>(last(), 1), last()};
  }

  void add(const RankColumns& kept) {
    if (!segments_.within_rows()) return;
    for (const Columns& interval : kept.columns()) {
      add_around(interval.begin);
      add_around(interval.end);
    }
  }

  std::vector<std::uint64_t> take() && {
    std::sort(indices_.begin(), indices_.end());
    indices_.erase(std::unique(indices_.begin(), indices_.end()), indices_.end());
    return std::move(indices_);
  }

 private:
  std::uint64_t last() const { return segments_.per_line() - 1; }

  void add_around(std::uint64_t column) {
    const std::uint64_t segment = std::min(column / segments_.step(), last());
    indices_.insert(indices_.end(), {segment - std::min<std::uint64_t>(segment, 1), segment,
                                     std::min(segment + 1, last())});
  }

  const Segments segments_;
  std::vector<std::uint64_t> indices_;
};

}  // namespace

bool same_geometry(const Schedule& schedule, std::uint32_t a, std::uint32_t b) {
  const auto tensors = schedule.catalog.tensors();
  return tensors[a].dtype == tensors[b].dtype && schedule.dtypes[a] == schedule.dtypes[b] &&
         schedule.cuts[a] == schedule.cuts[b] && schedule.lands[a] == schedule.lands[b] &&
         schedule.sliced[a] == schedule.sliced[b] &&
         std::ranges::equal(uses_of(schedule, a), uses_of(schedule, b),
                            [&](const Use& x, const Use& y) { return same_use(schedule, x, y); });
}

Geometries find_geometries(const Schedule& schedule) {
  const auto hash = [&](std::uint32_t tensor) { return geometry_hash(schedule, tensor); };
  const auto equal = [&](std::uint32_t a, std::uint32_t b) {
    return same_geometry(schedule, a, b);
  };
  std::unordered_map<std::uint32_t, std::uint32_t, decltype(hash), decltype(equal)> known(64, hash,
                                                                                          equal);
  Geometries found;
  found.of_tensor.reserve(schedule.cuts.size());
  for (std::uint32_t tensor = 0; tensor < schedule.cuts.size(); ++tensor) {
    const auto next = static_cast<std::uint32_t>(found.example.size());
    const auto [at, is_new] = known.try_emplace(tensor, next);
    if (is_new) {
      found.example.push_back(tensor);
      found.tensors.push_back(0);
    }
    found.of_tensor.push_back(at->second);
    if (is_read(schedule, tensor)) ++found.tensors[at->second];
  }
  return found;
}

std::uint64_t share_bytes(const Schedule& schedule, std::uint32_t tensor, std::uint32_t rank,
                          RankColumns& columns) {
  columns.assign(schedule, tensor, rank);
  return converted_bytes(schedule, tensor, schedule.cuts[tensor].rows * columns.row_bytes());
}

void rank_runs(const Schedule& schedule, std::uint32_t tensor, std::vector<RankRun>& runs) {
  runs.clear();
  RankColumns columns;
  if (is_replicated(schedule, tensor)) {
    const std::uint64_t bytes = share_bytes(schedule, tensor, 0, columns);
    if (bytes != 0) runs.push_back({0, schedule.replica_size, columns.row_bytes(), bytes});
    return;
  }
  const std::uint64_t rows = schedule.cuts[tensor].rows;
  for_each_receiver(schedule, tensor, columns, [&](std::uint32_t rank, const RankColumns& kept) {
    if (!runs.empty() && runs.back().end == rank && runs.back().row_bytes == kept.row_bytes()) {
      ++runs.back().end;
    } else {
      runs.push_back({rank, rank + 1, kept.row_bytes(),
                      converted_bytes(schedule, tensor, rows * kept.row_bytes())});
    }
  });
}

std::uint64_t run_overhead(const Schedule& schedule, std::uint32_t tensor, const RankRun& run,
                           RankColumns& columns) {
  columns.assign(schedule, tensor, run.first);
  return cached_overhead(schedule.cuts[tensor], columns,
                         schedule.cuts[tensor].rows * run.row_bytes);
}

std::vector<std::uint64_t> representative_segments(const Schedule& schedule, std::uint32_t tensor) {
  Representatives found(Segments(schedule.cuts[tensor], schedule.window));
  RankColumns columns;
  for_each_receiver(schedule, tensor, columns,
                    [&](std::uint32_t, const RankColumns& kept) { found.add(kept); });
  return std::move(found).take();
}

std::vector<std::uint64_t> representative_segments(const Segments& segments,
                                                   const RankColumns& columns) {
  Representatives found(segments);
  found.add(columns);
  return std::move(found).take();
}

}  // namespace safeshuffle::plan
