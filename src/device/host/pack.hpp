// Packing on the CPU.
#pragma once

#include <span>

#include "core/pack_item.hpp"
#include "core/thread_pool.hpp"
#include "device/device.hpp"

namespace safeshuffle::device {

/// Executes the table on the pool's workers and the calling thread; returns when all is done.
/// Small tables stay on the calling thread. Offsets are not checked: the plan is proved. Throws
/// what PackBuffers::reads throws; what was not packed is then unspecified.
void pack_on_host(std::span<const PackItem> items, const PackBuffers& buffers,
                  core::ThreadPool& pool);

}  // namespace safeshuffle::device
