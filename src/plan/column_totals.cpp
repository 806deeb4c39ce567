#include "plan/column_totals.hpp"

#include <algorithm>
#include <map>

#include "plan/geometry.hpp"

namespace safeshuffle::plan {

ColumnTotals::ColumnTotals(const Schedule& schedule, std::uint32_t tensor)
    : row_bytes_(schedule.cuts[tensor].row_bytes) {
  std::map<std::uint64_t, std::int64_t> changes{{0, 0}};  // of the number of ranks, by column
  const auto count = [&](const RankColumns& kept, std::int64_t ranks) {
    for (const Columns& interval : kept.columns()) {
      changes[interval.begin] += ranks;
      changes[interval.end] -= ranks;
    }
  };
  RankColumns columns;
  if (is_replicated(schedule, tensor)) {
    columns.assign(schedule, tensor, 0);
    count(columns, schedule.world);
  }
  for_each_receiver(schedule, tensor, columns,
                    [&](std::uint32_t, const RankColumns& kept) { count(kept, 1); });
  Step step;
  for (const auto& [column, change] : changes) {
    step.total += (column - step.column) * step.ranks;
    step.column = column;
    step.ranks += static_cast<std::uint64_t>(change);
    steps_.push_back(step);
  }
}

std::uint64_t ColumnTotals::before(std::uint64_t offset) const {
  return offset / row_bytes_ * in_row(row_bytes_) + in_row(offset % row_bytes_);
}

std::uint64_t ColumnTotals::in_row(std::uint64_t column) const {
  const auto after =
      std::upper_bound(steps_.begin(), steps_.end(), column,
                       [](std::uint64_t at, const Step& step) { return at < step.column; });
  const Step& step = *(after - 1);
  return step.total + (column - step.column) * step.ranks;
}

}  // namespace safeshuffle::plan
