// core: what happens where an allocation fails. The sanitizers have allocators of their own.
#include "support/sanitizers.hpp"

#if !SAFESHUFFLE_ASAN && !SAFESHUFFLE_TSAN
#include <cstdlib>
#include <new>

#include "core/thread_pool.hpp"
#include "support/catch.hpp"

using namespace safeshuffle;

namespace {

/// How many more allocations of this thread succeed; negative: all.
thread_local int allocations_left = -1;

}  // namespace

void* operator new(std::size_t bytes) {
  void* const memory = allocations_left == 0 ? nullptr : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  return memory;
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

TEST_CASE("a pool that runs out of memory ends the threads it has started", "[core]") {
  const auto is_made = [](int allocations) {
    allocations_left = allocations;
    try {
      const core::ThreadPool pool(3);
      allocations_left = -1;
      return true;
    } catch (const std::bad_alloc&) {
      allocations_left = -1;
      return false;
    }
  };
  int needed = 0;
  while (!is_made(needed)) ++needed;
  CHECK(needed > 3);  // one for each thread, and one for the list of them
}
#endif
