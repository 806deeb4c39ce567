// The state behind a TensorSet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "safeshuffle/communicator.hpp"
#include "safeshuffle/tensor.hpp"

#include "device/device.hpp"

namespace safeshuffle {

struct TensorSet::State {
  Plan plan;
  std::uint32_t rank = 0;
  std::shared_ptr<device::Device> device;
  std::shared_ptr<std::byte> arena;
  std::vector<std::uint64_t> extents;  ///< of all views' shapes, which point into it
  std::vector<TensorView> views;       ///< by name
  Report report;
};

namespace pipeline {

/// The views of `rank` into a finished arena.
std::shared_ptr<TensorSet::State> make_state(const Plan& plan, std::uint32_t rank,
                                             std::shared_ptr<device::Device> device,
                                             std::shared_ptr<std::byte> arena);

/// The same as `filled`, which has no tensors, with one: a part of the first one of its catalog, in
/// this dtype and shape, is all that its arena has.
TensorSet with_tensor(const TensorSet& filled, DType dtype, const Shape& shape);

/// Throws ConfigError unless `comm` has the same size and rank as the one that loaded the model.
void check_group(const TensorSet& model, const Communicator& comm);

}  // namespace pipeline
}  // namespace safeshuffle
