// All ranks of a test as a communicator, each with the device under test.
#pragma once

#include <cstdlib>
#include <optional>
#include <string_view>

#include "safeshuffle/mpi.hpp"

namespace safeshuffle::testing {

/// Selected by the environment: TEST_DEVICE=cuda, else the host.
inline Device device_under_test() {
  const char* const name = std::getenv("TEST_DEVICE");
  return name != nullptr && std::string_view(name) == "cuda" ? Device::cuda() : Device::host();
}

inline bool tests_gpus() {
  return device_under_test().kind == DeviceKind::cuda;
}

/// Collective.
inline Communicator world_group() {
  return from_mpi(MPI_COMM_WORLD, device_under_test());
}

inline std::optional<Communicator>& kept_group() {
  static std::optional<Communicator> group;
  return group;
}

/// One group for all tests that leave it usable: creating one over NCCL takes seconds if ranks
/// share a GPU. Collective. Kept until `drop_shared_group`.
inline const Communicator& shared_group() {
  if (!kept_group()) kept_group() = world_group();
  return *kept_group();
}

/// Call before MPI is finalised. Collective.
inline void drop_shared_group() {
  kept_group().reset();
}

}  // namespace safeshuffle::testing
