// The result of a load, for people.
#pragma once

#include <string>

#include "safeshuffle/report.hpp"

namespace safeshuffle::app {

/// "partitioned 561 tensors of 1.49 GB; replicated 161 tensors of 2.62 MB": these two always,
/// others if there are any; ends with a newline.
std::string placement_line(const PlacementSummary& placement);

/// "assigned round-robin (estimated 0.310 s; …)": without reason if the user selected it;
/// ends with a newline.
std::string assignment_line(Assignment assignment, Order order, const std::string& reason);

/// "bound by reading: 3.10 of 3.40 GB/s (91 % of cold direct)": the phase that took longest, and
/// what share of its ceiling it reached, or the time that it took if there is none in the report;
/// ends with a newline.
std::string bottleneck_line(const Report& report);

/// A table with one line per rank, and the totals; ends with a newline.
std::string summary(const Report& report);

}  // namespace safeshuffle::app
