// The ranges of options, and the time-out for peers that follows from them.
#pragma once

#include <chrono>

#include "safeshuffle/options.hpp"

namespace safeshuffle::pipeline {

/// Throws ConfigError if an option is out of range, or contradicts another.
void check_options(const Options& options);

/// How long to wait for peers: `options.timeout`, but never less than its smallest value, so that
/// ranks can agree even on the error that it is too small.
std::chrono::milliseconds timeout_of(const Options& options);

}  // namespace safeshuffle::pipeline
