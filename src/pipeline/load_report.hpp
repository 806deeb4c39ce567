// What ranks tell of a load, and the report of all.
#pragma once

#include <string>
#include <vector>

#include "safeshuffle/communicator.hpp"
#include "safeshuffle/plan.hpp"
#include "safeshuffle/report.hpp"

#include "pipeline/executor.hpp"
#include "pipeline/load_job.hpp"
#include "pipeline/phase_clock.hpp"
#include "pipeline/readiness.hpp"
#include "pipeline/workspace.hpp"

namespace safeshuffle::pipeline {

/// Of this rank, once its executor has run.
RankReport rank_report(const RankSummary& planned, const Workspace& workspace,
                       const Executor& executor, const Readiness& ready, PhaseClock& clock);

/// `rank_reports`: encoded, by rank.
Report make_report(const Plan& plan, const Origin& origin, const Communicator& comm,
                   const std::vector<std::string>& rank_reports);

}  // namespace safeshuffle::pipeline
