// Rules of CUDA and NCCL that the program has broken.
#pragma once

#include <string>

namespace simulated_gpu {

/// Writes the text on stderr at once, because what follows may be a hang, and keeps it for
/// `violations()`. Thread-safe.
void report_violation(const std::string& text);

/// From now on it is a violation, described by the text, if the process ends in a way that runs
/// exit handlers and destroys static objects. Thread-safe.
void forbid_exit(const std::string& text);

}  // namespace simulated_gpu
