#include "plan/bindings.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "plan/cut.hpp"
#include "plan/geometry.hpp"

namespace safeshuffle::plan {
namespace {

using Needs = std::span<const Need>;

bool is_whole_tensor(const Need& need, std::uint64_t tensor_bytes) {
  return need.bytes.run_bytes == tensor_bytes;
}

// The size of rows of which all are needed alike; so are those of any multiple. The whole tensor if
// there are no such rows.
std::uint64_t period_of(const Need& need, std::uint64_t tensor_bytes) {
  if (need.bytes.loops.empty()) return tensor_bytes;
  const StridedBytes::Loop& outermost = need.bytes.loops.front();
  return outermost.count * outermost.stride == tensor_bytes ? outermost.stride : tensor_bytes;
}

// The rows that suit the needs of all ranks: the largest period, if it is a multiple of the others.
// What is needed as a whole suits any.
std::uint64_t common_row_bytes(std::span<const Needs> needs, std::uint64_t tensor_bytes) {
  std::vector<std::uint64_t> periods;
  for (const Needs of_rank : needs) {
    for (const Need& need : of_rank) {
      if (!is_whole_tensor(need, tensor_bytes)) periods.push_back(period_of(need, tensor_bytes));
    }
  }
  if (periods.empty()) return tensor_bytes;
  const std::uint64_t largest = std::ranges::max(periods);
  const auto suits = [&](std::uint64_t period) { return largest % period == 0; };
  return std::ranges::all_of(periods, suits) ? largest : tensor_bytes;
}

// What one rank needs of each row of a tensor.
class ColumnsOfRank {
 public:
  ColumnsOfRank(Needs needs, std::uint64_t row_bytes, std::uint64_t tensor_bytes,
                std::uint64_t limit) {
    for (const Need& need : needs) in_row_.push_back(in_row(need, row_bytes, tensor_bytes));
    coarsen(limit);
    for (const StridedBytes& bytes : in_row_) append(bytes, 0, bytes.begin);
    unite(kept_.columns);
    kept_.sum_up();
  }

  KeptColumns take() && { return std::move(kept_); }

 private:
  static StridedBytes in_row(const Need& need, std::uint64_t row_bytes,
                             std::uint64_t tensor_bytes) {
    if (is_whole_tensor(need, tensor_bytes)) return {0, {}, row_bytes};
    StridedBytes bytes = need.bytes;
    if (period_of(need, tensor_bytes) < tensor_bytes) {
      bytes.loops.front().count = row_bytes / bytes.loops.front().stride;
    }
    return bytes;
  }

  // Until there are few enough, makes one column of what the innermost loops run over.
  void coarsen(std::uint64_t limit) {
    std::size_t depth = 0;
    for (const StridedBytes& bytes : in_row_) depth = std::max(depth, bytes.loops.size());
    for (; depth > 0 && exceeds(limit); --depth) {
      for (StridedBytes& bytes : in_row_) {
        if (bytes.loops.size() < depth) continue;
        bytes.run_bytes += (bytes.loops.back().count - 1) * bytes.loops.back().stride;
        bytes.loops.pop_back();
      }
    }
  }

  bool exceeds(std::uint64_t limit) const {
    std::uint64_t columns = 0;
    for (const StridedBytes& bytes : in_row_) {
      std::uint64_t of_box = 1;
      for (const StridedBytes::Loop& loop : bytes.loops) of_box *= loop.count;
      columns += of_box;
      if (columns > limit) return true;
    }
    return false;
  }

  void append(const StridedBytes& bytes, std::size_t depth, std::uint64_t begin) {
    if (depth == bytes.loops.size()) {
      kept_.columns.push_back({begin, begin + bytes.run_bytes});
      return;
    }
    for (std::uint64_t i = 0; i < bytes.loops[depth].count; ++i) {
      append(bytes, depth + 1, begin + i * bytes.loops[depth].stride);
    }
  }

  std::vector<StridedBytes> in_row_;
  KeptColumns kept_;
};

std::uint64_t table_hash(const RankParts& parts) {
  std::uint64_t hash = parts.row_bytes;
  for (const KeptColumns& kept : parts.columns) {
    hash = mixed(hash, kept.columns.size());
    for (const Columns& interval : kept.columns) {
      hash = mixed(mixed(hash, interval.begin), interval.end);
    }
  }
  return hash;
}

// Of the kinds, the one whose ranks hold what these do.
Placement placement_for(const RankParts& parts) {
  const auto is_empty = [](const KeptColumns& kept) { return kept.row_bytes == 0; };
  const auto& columns = parts.columns;
  const auto first = std::ranges::find_if_not(columns, is_empty);
  Placement placement;
  if (std::ranges::all_of(columns, [&](const KeptColumns& kept) { return kept == *first; })) {
    return placement;
  }
  const bool is_single = std::all_of(first + 1, columns.end(), is_empty);
  placement.kind = is_single ? Placement::Kind::single : Placement::Kind::sharded;
  if (is_single) placement.rank = static_cast<std::uint32_t>(first - columns.begin());
  return placement;
}

class BoundTargets {
 public:
  BoundTargets(const Catalog& catalog, std::span<const std::vector<Need>> needs,
               std::uint64_t column_limit)
      : catalog_(catalog), left_(needs.begin(), needs.end()), column_limit_(column_limit) {}

  std::vector<Target> make() && {
    while (const auto tensor = next_tensor()) add_target(*tensor);
    return std::move(targets_);
  }

 private:
  std::optional<std::uint32_t> next_tensor() const {
    std::optional<std::uint32_t> next;
    for (const Needs needs : left_) {
      if (needs.empty()) continue;
      next = std::min(needs.front().tensor, next.value_or(needs.front().tensor));
    }
    return next;
  }

  void add_target(std::uint32_t tensor) {
    std::vector<Needs> needs;
    for (Needs& left : left_) {
      const auto other = [&](const Need& need) { return need.tensor != tensor; };
      const auto end = std::ranges::find_if(left, other);
      needs.push_back(left.first(static_cast<std::size_t>(end - left.begin())));
      left = left.subspan(needs.back().size());
    }
    Target target;
    target.tensor = tensor;
    target.parts = shared(parts_of(needs, catalog_.tensors()[tensor].bytes));
    target.placement = placement_for(*target.parts);
    targets_.push_back(std::move(target));
  }

  RankParts parts_of(std::span<const Needs> needs, std::uint64_t tensor_bytes) const {
    RankParts parts;
    parts.row_bytes = common_row_bytes(needs, tensor_bytes);
    for (const Needs of_rank : needs) {
      parts.columns.push_back(
          ColumnsOfRank(of_rank, parts.row_bytes, tensor_bytes, column_limit_).take());
    }
    parts.hash = table_hash(parts);
    return parts;
  }

  // The first that is equal.
  std::shared_ptr<const RankParts> shared(RankParts parts) {
    std::vector<std::shared_ptr<const RankParts>>& candidates = known_[parts.hash];
    for (const auto& known : candidates) {
      if (*known == parts) return known;
    }
    candidates.push_back(std::make_shared<const RankParts>(std::move(parts)));
    return candidates.back();
  }

  const Catalog& catalog_;
  std::vector<Needs> left_;  // by rank, what is not in a target yet
  const std::uint64_t column_limit_;
  std::unordered_map<std::uint64_t, std::vector<std::shared_ptr<const RankParts>>> known_;
  std::vector<Target> targets_;
};

}  // namespace

std::vector<Need> needs_of(const LentMemory& lent) {
  std::vector<Need> needs;
  needs.reserve(lent.copies.size());
  for (const StridedCopy& copy : lent.copies) {
    needs.push_back({copy.tensor, source_of(copy)});
    merge_loops(needs.back().bytes);
  }
  return needs;
}

std::vector<Target> bound_targets(const Catalog& catalog, std::span<const std::vector<Need>> needs,
                                  std::uint64_t column_limit) {
  return BoundTargets(catalog, needs, column_limit).make();
}

}  // namespace safeshuffle::plan
