#include "probe/rig.hpp"

#include "safeshuffle/error.hpp"

#include "core/backoff.hpp"
#include "core/deadline.hpp"

namespace safeshuffle::probing {

void ProbeRig::await_queue() {
  const core::Deadline deadline(timeout);
  core::Backoff backoff;
  while (!queue->idle()) {
    if (deadline.expired()) throw TimeoutError("the device has not finished its work");
    backoff.pause();
  }
}

void ProbeRig::touch_slabs() {
  for (const auto& slab : slabs->memory) packer->zero(slab.get(), 1, slabs->bytes, slabs->bytes);
  await_queue();
}

}  // namespace safeshuffle::probing
