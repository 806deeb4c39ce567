// How many stored bytes of a tensor its reader and all ranks that it sends to keep together.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// Totals of one tensor: counts each stored byte once per rank of one replica that keeps it, or, if
/// it is broadcast, once per rank.
class ColumnTotals {
 public:
  ColumnTotals(const Schedule& schedule, std::uint32_t tensor);

  /// The total kept of the stored bytes before `offset`.
  std::uint64_t before(std::uint64_t offset) const;

 private:
  // From `column` on, `ranks` ranks keep every column; the columns before count for `total` bytes.
  struct Step {
    std::uint64_t column = 0;
    std::uint64_t ranks = 0;
    std::uint64_t total = 0;
  };

  std::uint64_t in_row(std::uint64_t column) const;

  std::uint64_t row_bytes_;
  std::vector<Step> steps_;  // ascending columns, the first at 0
};

}  // namespace safeshuffle::plan
