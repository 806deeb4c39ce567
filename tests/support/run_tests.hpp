// Catch2's runner, compiled once for all test programs: with version 2, that takes longer than most
// tests.
#pragma once

namespace safeshuffle::testing {

/// Runs the program's tests as the command line requests; returns the exit code.
int run_tests(int argc, char** argv);

}  // namespace safeshuffle::testing
