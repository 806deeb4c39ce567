// All public headers except the opt-in interop headers.
#pragma once

#include "safeshuffle/all_gather.hpp"
#include "safeshuffle/bootstrap.hpp"
#include "safeshuffle/communicator.hpp"
#include "safeshuffle/device.hpp"
#include "safeshuffle/dtype.hpp"
#include "safeshuffle/error.hpp"
#include "safeshuffle/loader.hpp"
#include "safeshuffle/metadata.hpp"
#include "safeshuffle/options.hpp"
#include "safeshuffle/placement.hpp"
#include "safeshuffle/plan.hpp"
#include "safeshuffle/report.hpp"
#include "safeshuffle/selection.hpp"
#include "safeshuffle/sharded_output.hpp"
#include "safeshuffle/tensor.hpp"
