// The costs, one by one.
#pragma once

#include <array>

#include "safeshuffle/costs.hpp"

namespace safeshuffle::plan {

/// One of them, with its name in JSON.
struct CostField {
  const char* name;
  double Costs::*value;
};

inline constexpr std::array cost_fields{
    CostField{"read_cold_direct_rank", &Costs::read_cold_direct_rank},
    CostField{"read_cold_direct_node", &Costs::read_cold_direct_node},
    CostField{"read_cold_buffered_rank", &Costs::read_cold_buffered_rank},
    CostField{"read_cold_buffered_node", &Costs::read_cold_buffered_node},
    CostField{"request_seconds", &Costs::request_seconds},
    CostField{"read_warm_rank", &Costs::read_warm_rank},
    CostField{"read_warm_node", &Costs::read_warm_node},
    CostField{"first_touch", &Costs::first_touch},
    CostField{"pack", &Costs::pack},
    CostField{"pack_convert", &Costs::pack_convert},
    CostField{"host_to_device", &Costs::host_to_device},
    CostField{"exchange", &Costs::exchange},
    CostField{"wave_seconds", &Costs::wave_seconds},
};

}  // namespace safeshuffle::plan
