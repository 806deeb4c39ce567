// A rank that runs out of memory during a load: all ranks throw its error. The sanitizers have
// allocators of their own.
#include "support/sanitizers.hpp"

#if !SAFESHUFFLE_ASAN && !SAFESHUFFLE_TSAN
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "safeshuffle/loader.hpp"

#include "support/catch.hpp"
#include "support/group.hpp"
#include "support/shared_model.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

/// From how many bytes on allocations of this thread fail; 0: none does.
thread_local std::size_t least_failing = 0;

/// One file per rank, of tensors so small that the pack table of a wave is larger than all else.
testing::RandomModel model_of_small_tensors() {
  constexpr std::uint32_t count = 600;
  std::vector<std::vector<testing::Made>> made;
  std::vector<Placement> placements;
  for (std::uint32_t file = 0; file < world_size(); ++file) {
    auto& tensors = made.emplace_back();
    for (std::uint32_t tensor = 0; tensor < count; ++tensor) {
      tensors.push_back({testing::numbered("t", file * count + tensor), DType::F32, {16}});
      placements.push_back(testing::whole());
    }
  }
  return {testing::make_catalog(made), placements};
}

}  // namespace

void* operator new(std::size_t bytes) {
  const bool fails = least_failing != 0 && bytes >= least_failing;
  void* const memory = fails ? nullptr : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// Not inlined: GCC would take this `free` for one of memory from another `new`.
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}

[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

TEST_CASE("no memory in the middle of a load is a MemoryError on all ranks", "[load][host]") {
  const bool while_waiting = GENERATE(false, true);  // for another rank; else after a wave
  if (while_waiting && world_size() == 1) return;
  const SharedModel model(model_of_small_tensors());
  const Communicator& comm = shared_group();
  const Plan plan = model.plan(with_window(8192));
  Options options;
  std::optional<std::uint64_t> waves;  // when last called
  options.on_progress = [&](const Progress& progress) {
    const bool waits = std::exchange(waves, progress.wave) == progress.wave;
    if (while_waiting && world_rank() == 0 && progress.wave == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    if (is_last_rank() && waits == while_waiting) least_failing = 4096;
  };
  const auto error = common_error([&] {
    try {
      load(plan, comm, options);
    } catch (...) {
      least_failing = 0;
      throw;
    }
  });
  least_failing = 0;
  const bool usable = is_right(load(plan, comm), comm.rank());
  REQUIRE(plan.waves() > 3);
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::memory);
  CHECK(error->rank == static_cast<std::int32_t>(world_size()) - 1);
  CHECK(usable);
}
#endif
