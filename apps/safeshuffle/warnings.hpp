// Warnings on the terminal.
#pragma once

#include <string>
#include <vector>

namespace safeshuffle::app {

/// Prints each to standard error as "safeshuffle: warning: …". Call on rank 0 only.
void print_warnings(const std::vector<std::string>& warnings);

}  // namespace safeshuffle::app
