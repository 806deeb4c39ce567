// The result of a probe, for people.
#pragma once

#include <string>

#include "safeshuffle/probe.hpp"

namespace safeshuffle::app {

/// Machine and files, a table of rates, and what could not be measured; ends with a newline.
std::string probe_text(const Probe& probe);

}  // namespace safeshuffle::app
