// What fills the memory that the caller of one rank lends, made from its bindings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "safeshuffle/binding.hpp"
#include "safeshuffle/metadata.hpp"

#include "plan/landing.hpp"
#include "plan/strided_copy.hpp"

namespace safeshuffle::plan {

/// Of one rank; other ranks know nothing of it. Destinations are counted from `base`, which takes
/// the place of an arena: a multiple of the page, so that offsets are congruent to addresses, at or
/// before the first byte lent.
struct LentMemory {
  std::byte* base = nullptr;
  std::shared_ptr<void> owner;  ///< kept as long as anything may still write to it; or null
  std::optional<std::uint64_t> new_bytes;  ///< not lent, but to be allocated: `base` is invented
  std::vector<StridedCopy> copies;         ///< ordered by (tensor, source)
  std::vector<Zeros> zeros;
};

/// Throws PlanError naming the tensor and the destination of the first binding that cannot be, or
/// both destinations where two overlap.
LentMemory lend(const Catalog& catalog, std::span<const Binding> bindings);

/// What is copied from one tensor.
std::span<const StridedCopy> copies_of(const LentMemory& lent, std::uint32_t tensor);

/// Appends the items that bring what lent memory needs of the stored bytes `part` of a tensor from
/// where these are kept.
void append_copy_items(const LentMemory& lent, std::uint32_t tensor, const Range& part,
                       const KeptPlace& place, std::vector<PackItem>& items);

}  // namespace safeshuffle::plan
