// The one message of a job that failed.
#pragma once

#include "safeshuffle/error.hpp"

namespace safeshuffle::app {

/// Writes "safeshuffle: error: …" to standard error.
void print_error(const ErrorRecord& error);

}  // namespace safeshuffle::app
