#include "support/simulated_gpu/nccl_reduce.hpp"

#include <algorithm>
#include <cstring>

namespace simulated_gpu {
namespace {

using ReduceFunction = void (*)(ncclRedOp_t, std::byte*, const std::byte*, std::uint64_t);

template <class Element>
Element apply(ncclRedOp_t reduction, Element one, Element other) {
  if (reduction == ncclMin) return std::min(one, other);
  if (reduction == ncclMax) return std::max(one, other);
  return static_cast<Element>(one + other);
}

template <class Element>
void reduce_elements(ncclRedOp_t reduction, std::byte* target, const std::byte* operand,
                     std::uint64_t bytes) {
  for (std::uint64_t at = 0; at + sizeof(Element) <= bytes; at += sizeof(Element)) {
    Element one{};
    Element other{};
    std::memcpy(&one, target + at, sizeof one);
    std::memcpy(&other, operand + at, sizeof other);
    one = apply(reduction, one, other);
    std::memcpy(target + at, &one, sizeof one);
  }
}

/// Null for types that do not support it.
ReduceFunction function_for(ncclDataType_t type) {
  switch (type) {
    case ncclInt32:
      return reduce_elements<std::int32_t>;
    case ncclUint32:
      return reduce_elements<std::uint32_t>;
    case ncclInt64:
      return reduce_elements<std::int64_t>;
    case ncclUint64:
      return reduce_elements<std::uint64_t>;
    default:
      return nullptr;
  }
}

}  // namespace

bool can_reduce(ncclDataType_t type, ncclRedOp_t reduction) {
  const bool known = reduction == ncclSum || reduction == ncclMin || reduction == ncclMax;
  return known && function_for(type) != nullptr;
}

void reduce(ncclDataType_t type, ncclRedOp_t reduction, std::byte* target, const std::byte* operand,
            std::uint64_t bytes) {
  function_for(type)(reduction, target, operand, bytes);
}

}  // namespace simulated_gpu
