// Loaded tensors: an owner of device memory and the views into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "safeshuffle/device.hpp"
#include "safeshuffle/dtype.hpp"
#include "safeshuffle/metadata.hpp"
#include "safeshuffle/plan.hpp"
#include "safeshuffle/report.hpp"

namespace safeshuffle {

/// This rank's shard of one target, under one of its names: contiguous, row-major, 256-byte aligned
/// device memory. A view owns nothing and is valid as long as any copy of its TensorSet, or of
/// `TensorSet::owner()`, exists.
struct TensorView {
  std::string_view name;
  DType dtype = DType::U8;
  std::span<const std::uint64_t> shape;  ///< of the shard; an extent may be 0
  std::byte* data = nullptr;             ///< device address; null only if bytes == 0
  std::uint64_t bytes = 0;
  std::uint32_t index = 0;  ///< into Plan::targets()
};

/// All tensors that one rank holds after a load, ordered by name. Cheap to copy: copies share one
/// arena, which the last of them frees. May outlive the communicator it was loaded with. Reading
/// from several threads is safe.
class TensorSet {
 public:
  struct State;
  explicit TensorSet(std::shared_ptr<const State> state);

  std::size_t size() const noexcept;
  const TensorView* begin() const noexcept;
  const TensorView* end() const noexcept;

  /// Null if this rank holds no such tensor.
  const TensorView* find(std::string_view name) const noexcept;

  /// Throws ConfigError if this rank holds no such tensor.
  const TensorView& at(std::string_view name) const;

  DeviceKind device() const noexcept;

  /// CUDA ordinal, in this process, of the GPU that holds the tensors; 0 on the host.
  int ordinal() const noexcept;

  const Plan& plan() const noexcept;

  /// This rank in the group that loaded the tensors.
  std::uint32_t rank() const noexcept;

  /// Report of the load on all ranks; the same on every rank.
  const Report& report() const noexcept;

  /// Shares ownership of the memory behind all views.
  std::shared_ptr<const void> owner() const noexcept;

  /// Copies a view's bytes to host memory; `destination.size()` must equal `view.bytes`.
  void copy_to_host(const TensorView& view, std::span<std::byte> destination) const;

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace safeshuffle
