// Whether what a load leaves in the page cache fits into memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "safeshuffle/device.hpp"
#include "safeshuffle/plan.hpp"

namespace safeshuffle::pipeline {

/// What one rank knows of the memory of its node.
struct Memory {
  std::string node;             ///< equal on the ranks of one node
  std::string host;             ///< its name
  std::uint64_t available = 0;  ///< bytes, page cache included; 0 if unknown
};

/// A warning if on some node the bytes that its ranks read, and on the host device the memory that
/// they allocate, exceed the memory that is available there; otherwise empty. `memory`: by rank.
/// Pure.
std::string prefetch_warning(const Plan& plan, DeviceKind device, std::span<const Memory> memory);

}  // namespace safeshuffle::pipeline
