// Bindings of whole tensors.
#pragma once

#include <cstddef>
#include <vector>

#include "safeshuffle/binding.hpp"

namespace safeshuffle::testing {

/// All tensors, one behind the other, as they are stored.
inline std::vector<Binding> whole_tensors(const Catalog& catalog, std::byte* memory) {
  std::vector<Binding> bindings;
  for (const TensorInfo& tensor : catalog.tensors()) {
    const Box box{tensor.name, 0, tensor.shape, dense_strides(tensor.shape)};
    bindings.push_back({box, memory, tensor.dtype, box.strides, tensor.name});
    memory += tensor.bytes;
  }
  return bindings;
}

}  // namespace safeshuffle::testing
