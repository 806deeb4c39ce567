// Opening a checkpoint together: each file's header is read by one rank, all ranks get the catalog.
#pragma once

#include <string>
#include <vector>

#include "safeshuffle/loader.hpp"

#include "comm/control/control.hpp"
#include "source/source.hpp"

namespace safeshuffle::pipeline {

/// A checkpoint and its placement rules.
struct Opened {
  Checkpoint checkpoint;
  TpPlan tp_plan;
  std::vector<std::string> inputs;  ///< paths of all files that rank 0 found or read
};

/// Collective. Rank 0 finds the files and reads the rules; rank r reads the headers of files
/// r, r + N, … All ranks throw the same error.
Opened open_together(const source::Source& source, const std::vector<std::string>& paths,
                     const Options& options, comm::Control& control);

}  // namespace safeshuffle::pipeline
