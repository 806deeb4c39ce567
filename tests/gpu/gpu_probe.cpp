// Whether this machine has a GPU that works: exit status 0, or 77 (skipped) and why not.
#include <cstdio>

#include "device/device.hpp"

int main() {
  const std::string obstacle = safeshuffle::device::gpu_obstacle();
  if (obstacle.empty()) return 0;
  std::puts(obstacle.c_str());
  return 77;
}
