// A device on which packing is measured beside a plain copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/pack_item.hpp"

namespace safeshuffle::bench {

/// Each call runs once or several times in a row and waits. The slab holds 0x3c in every byte.
class PackRig {
 public:
  virtual ~PackRig() = default;
  virtual std::string description() const = 0;

  /// What the plain copy is called.
  virtual std::string copy_name() const = 0;

  /// How often each case is worth being measured.
  virtual int repetitions() const = 0;

  /// Seconds that one pass over the items takes.
  virtual double pack(std::span<const PackItem> items) = 0;

  /// Seconds that it takes to copy so many bytes, aligned.
  virtual double copy(std::uint64_t bytes) = 0;
};

/// `threads` pack; one copies. Slab and target have a little more than `bytes`.
std::unique_ptr<PackRig> make_host_rig(std::size_t threads, std::uint64_t bytes);

/// The first GPU, at its working clock. Throws std::runtime_error if there is none, or CUDA fails.
std::unique_ptr<PackRig> make_cuda_rig(std::uint64_t bytes);

}  // namespace safeshuffle::bench
