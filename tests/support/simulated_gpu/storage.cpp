// How a library that is loaded at run time, such as one in the place of cuFile, writes into the
// memory of simulated GPUs: as a storage device does that is given its address.
#include <cstddef>
#include <cstring>

#include "support/simulated_gpu/call.hpp"
#include "support/simulated_gpu/memory.hpp"
#include "support/simulated_gpu/violations.hpp"

using namespace simulated_gpu;

/// Returns whether that was possible. The GPU must be current on this thread.
extern "C" [[gnu::visibility("default")]] bool simulated_gpu_write(void* to, const void* from,
                                                                   std::size_t bytes) {
  try {
    const auto region = find_region(to, bytes, "target of a storage device");
    if (!region || !region->on_device()) return false;
    if (ContextStack::of_this_thread().top() != &region->allocation->device) {
      report_violation("a storage device writes to a GPU that is not current");
      return false;
    }
    std::memcpy(region->data, from, bytes);
    return true;
  } catch (const CudaFailure&) {  // the violation has been reported
    return false;
  }
}
