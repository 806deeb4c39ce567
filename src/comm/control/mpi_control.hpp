// Control messages over MPI: non-blocking calls only, every wait bounded.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/control/control.hpp"
#include "comm/mpi/mpi_group.hpp"

namespace safeshuffle::comm {

/// Large enough for speed, small enough that one takes less than any time-out.
inline constexpr std::uint64_t text_piece = std::uint64_t{4} << 20;

/// Longer texts are sent in pieces of `piece` bytes, the same on all ranks.
std::unique_ptr<Control> make_mpi_control(std::shared_ptr<MpiGroup> group,
                                          std::uint64_t piece = text_piece);

}  // namespace safeshuffle::comm
