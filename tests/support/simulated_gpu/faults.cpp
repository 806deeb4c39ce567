#include "support/simulated_gpu/faults.hpp"

#include <atomic>

#include "support/simulated_gpu/inspect.hpp"
#include "support/simulated_gpu/settings.hpp"

namespace simulated_gpu {
namespace {

/// Operations up to and including the one that fails; 0: none fails.
std::atomic<std::uint64_t>& countdown() {
  static std::atomic<std::uint64_t> remaining{settings().fail_after};
  return remaining;
}

}  // namespace

bool next_operation_fails() {
  std::uint64_t remaining = countdown();
  while (remaining > 0 && !countdown().compare_exchange_weak(remaining, remaining - 1)) {
  }
  return remaining == 1;
}

void fail_after(std::uint64_t count) {
  countdown() = count;
}

}  // namespace simulated_gpu
