// The arithmetic of ncclAllReduce.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nccl.h>

namespace simulated_gpu {

/// Whether this reduction is supported for this type.
bool can_reduce(ncclDataType_t type, ncclRedOp_t reduction);

/// target = target (reduction) operand, element by element.
void reduce(ncclDataType_t type, ncclRedOp_t reduction, std::byte* target, const std::byte* operand,
            std::uint64_t bytes);

}  // namespace simulated_gpu
