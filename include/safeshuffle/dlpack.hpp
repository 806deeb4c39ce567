// Opt-in interop with DLPack, by which Python frameworks take tensors over without a copy; the only
// public header that includes <dlpack/dlpack.h>.
#pragma once

#include <dlpack/dlpack.h>

#include "safeshuffle/tensor.hpp"

namespace safeshuffle {

/// `view`, a tensor of `model`, as DLPack has it; the data is not copied. The result belongs to the
/// caller, or to whom it is handed on, who must call its `deleter` once, on any thread. Until then
/// it keeps the memory of the whole model alive, as a copy of `model` does.
///
/// The data is there: no stream need be waited for. What one consumer writes, all others see.
/// Strides are always given, in elements, row-major. A tensor without elements has null data.
///
/// Throws ConfigError, naming the tensor, for types that DLPack does not have: F4 and F6, whose
/// elements do not fill bytes; BOOL, where the library was built with a DLPack before 0.8; F8,
/// before 1.1. Consumers may know fewer: NumPy has no BF16.
DLManagedTensor* to_dlpack(const TensorSet& model, const TensorView& view);

}  // namespace safeshuffle
