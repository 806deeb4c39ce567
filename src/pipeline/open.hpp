// Opening a checkpoint together: each file's header is read and parsed by one rank, all ranks get
// the catalog.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "safeshuffle/loader.hpp"

#include "comm/control/control.hpp"
#include "source/source.hpp"

namespace safeshuffle::pipeline {

/// A checkpoint, its placement rules, and where the group is.
struct Opened {
  Checkpoint checkpoint;
  TpPlan tp_plan;
  Site site;                           ///< the same on all ranks
  std::optional<double> cached_share;  ///< see Report
  std::vector<std::string> inputs;     ///< paths of all files that rank 0 found or read
};

/// Collective. Rank 0 finds the files, reads the rules and checks the index; rank r reads and
/// parses the headers of files r, r + N, … All ranks throw the same error. `device`: of the group.
Opened open_together(const source::Source& source, const std::vector<std::string>& paths,
                     const Options& options, DeviceKind device, comm::Control& control);

}  // namespace safeshuffle::pipeline
