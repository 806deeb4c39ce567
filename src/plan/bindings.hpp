// From what the bindings of all ranks need to targets.
#pragma once

#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "safeshuffle/metadata.hpp"
#include "safeshuffle/target.hpp"

#include "core/wire.hpp"
#include "plan/lent_memory.hpp"
#include "plan/strided_bytes.hpp"

namespace safeshuffle::plan {

/// Stored bytes of one tensor that a rank needs: small, to be sent to all ranks.
struct Need {
  std::uint32_t tensor = 0;  ///< index into Catalog::tensors()
  StridedBytes bytes;        ///< of descending strides, each at least the span of what follows
  bool operator==(const Need&) const = default;
};

auto fields(core::As<StridedBytes::Loop> auto& loop) {
  return std::tie(loop.count, loop.stride);
}

auto fields(core::As<StridedBytes> auto& bytes) {
  return std::tie(bytes.begin, bytes.loops, bytes.run_bytes);
}

auto fields(core::As<Need> auto& need) {
  return std::tie(need.tensor, need.bytes);
}

/// What the rank needs for its lent memory, ordered by tensor.
std::vector<Need> needs_of(const LentMemory& lent);

/// So many columns of one tensor are told apart for each rank. If it needs more, it gets what lies
/// between them as well.
inline constexpr std::uint64_t most_columns = 65'536;

/// One target for each tensor that any rank needs bytes of, in the order of the catalog. `needs`:
/// needs_of, by rank.
std::vector<Target> bound_targets(const Catalog& catalog, std::span<const std::vector<Need>> needs,
                                  std::uint64_t column_limit = most_columns);

}  // namespace safeshuffle::plan
