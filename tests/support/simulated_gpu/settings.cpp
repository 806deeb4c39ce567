#include "support/simulated_gpu/settings.hpp"

#include <cstdlib>
#include <string>

namespace simulated_gpu {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::uint64_t number(const char* name, std::uint64_t absent) {
  const std::string value = variable(name);
  return value.empty() ? absent : std::stoull(value);
}

Settings read_settings() {
  Settings result;
  result.driver = variable("SIMULATED_GPUS") != "nodriver";
  if (result.driver) result.gpus = static_cast<int>(number("SIMULATED_GPUS", 1));
  result.memory = number("SIMULATED_GPU_MEMORY", result.memory);
  result.seed = number("SIMULATED_GPU_SEED", result.seed);
  result.fail_after = number("SIMULATED_GPU_FAIL_AFTER", 0);
  result.stuck_parting = variable("SIMULATED_NCCL_PARTING") == "stuck";
  return result;
}

}  // namespace

const Settings& settings() {
  static const Settings result = read_settings();
  return result;
}

}  // namespace simulated_gpu
