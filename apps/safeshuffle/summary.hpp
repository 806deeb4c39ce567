// What a load did, for people.
#pragma once

#include <string>

#include "safeshuffle/report.hpp"

namespace safeshuffle::app {

/// A table with one line per rank, and the totals; ends with a newline.
std::string summary(const Report& report);

}  // namespace safeshuffle::app
