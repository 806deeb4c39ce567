#include "device/cuda/call.hpp"

#include <filesystem>

namespace safeshuffle::device {

ErrorRecord cuda_error(cudaError_t code, const std::string& operation,
                       const std::source_location& where) {
  const std::string file = std::filesystem::path(where.file_name()).filename().string();
  return {.code = static_cast<std::int32_t>(code),
          .cause = operation + ": " + cudaGetErrorName(code) + ", " + cudaGetErrorString(code) +
                   " (" + file + ":" + std::to_string(where.line()) + ")"};
}

}  // namespace safeshuffle::device
