// What happens where an allocation fails, and how much planning allocates. The sanitizers have
// allocators of their own.
#include "support/sanitizers.hpp"

#if !SAFESHUFFLE_ASAN && !SAFESHUFFLE_TSAN
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <malloc.h>
#include <new>
#include <utility>
#include <vector>

#include "safeshuffle/plan.hpp"

#include "core/thread_pool.hpp"
#include "support/catalogs.hpp"
#include "support/catch.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

/// How many more allocations of this thread succeed; negative: all.
thread_local int allocations_left = -1;

/// Bytes that this thread has allocated and not freed, and the most there were. Relative: what was
/// allocated elsewhere may be freed here.
thread_local std::ptrdiff_t allocated = 0;
thread_local std::ptrdiff_t peak = 0;

void note(void* memory, int sign) {
  allocated += sign * static_cast<std::ptrdiff_t>(malloc_usable_size(memory));
  peak = std::max(peak, allocated);
}

/// The most bytes that are allocated at once during `work`, beside those before.
template <class Work>
std::size_t most_allocated(Work work) {
  const std::ptrdiff_t before = peak = allocated;
  work();
  return static_cast<std::size_t>(peak - before);
}

}  // namespace

void* operator new(std::size_t bytes) {
  void* const memory = allocations_left == 0 ? nullptr : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  note(memory, 1);
  return memory;
}

void operator delete(void* memory) noexcept {
  note(memory, -1);
  std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept {
  note(memory, -1);
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

TEST_CASE("planning takes memory for tensors and ranks, not for their product, nor for waves",
          "[plan]") {
  constexpr std::size_t bytes_per_tensor = 400;
  constexpr std::size_t bytes_per_rank = 2048;
  const auto [tensors, tensor_bytes, world, window] =
      GENERATE(table<std::size_t, std::uint64_t, std::uint32_t, std::uint64_t>({
          {10'000, 4096, 4, 1U << 20},
          {10'000, 4096, 2048, 1U << 20},
          {10'000, 4096, 2048, 4096},
          {100, std::uint64_t{1} << 35, 8, 4096},
          {100, std::uint64_t{1} << 35, 2048, 4096},
      }));
  const auto assignment = GENERATE(Assignment::round_robin, Assignment::striped);
  std::vector<Placement> placements;
  std::vector<std::vector<Made>> files(10);
  const std::uint64_t rows = tensor_bytes / 4096;
  for (std::size_t i = 0; i < tensors; ++i) {
    files[i * files.size() / tensors].push_back({numbered("t", i), DType::U8, {rows, 4096}});
    placements.push_back(i % 3 == 0 ? whole() : i % 3 == 1 ? cut(0, rows, true) : cut(1, 4096));
  }
  Catalog catalog = make_catalog(files);
  PlanOptions options;
  options.window = window;
  options.assignment = assignment;
  const std::size_t most = most_allocated([&, ranks = world] {
    make_plan(std::move(catalog), std::move(placements), ranks, options).prove();
  });
  CAPTURE(tensors, world, window, static_cast<int>(assignment), most);
  // Striped, every rank may read a part of each of the ten files.
  CHECK(most < tensors * bytes_per_tensor + std::size_t{world} * bytes_per_rank);
}
#endif
