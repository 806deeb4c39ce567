// Builds the pack kernel's table from pack items.
#pragma once

#include <cstdint>
#include <span>

#include "core/pack_item.hpp"
#include "device/cuda/pack_entry.hpp"
#include "device/device.hpp"

namespace safeshuffle::device {

/// Writes one entry per item, in the same order, to the start of `entries`, which must have room
/// for them; returns the number of tiles. `buffers` hold addresses as the kernel sees them, and are
/// not accessed. Offsets are not checked: the plan is proved.
std::uint64_t make_pack_entries(std::span<const PackItem> items, const PackBuffers& buffers,
                                std::span<PackEntry> entries);

}  // namespace safeshuffle::device
