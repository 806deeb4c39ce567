// Rules of CUDA and NCCL that the program has broken.
#pragma once

#include <string>

namespace simulated_gpu {

/// Writes the text on stderr at once, because what follows may be a hang, and keeps it for
/// `violations()`. Thread-safe.
void report_violation(const std::string& text);

}  // namespace simulated_gpu
