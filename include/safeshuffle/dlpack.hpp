// Opt-in interop with DLPack, through which Python frameworks use tensors without a copy; the only
// public header that includes <dlpack/dlpack.h>.
#pragma once

#include <dlpack/dlpack.h>

#include "safeshuffle/tensor.hpp"

namespace safeshuffle {

/// Exports `view`, a tensor of `model`, without copying the data. The result belongs to the caller,
/// or to a consumer it is passed to; the owner must call its `deleter` once, on any thread. Until
/// then it keeps the memory of the whole model alive, as a copy of `model` does.
///
/// The data is complete: consumers need not wait for a stream. All consumers share it, writes
/// included. Strides are always set, in elements, row-major. A tensor without elements has null
/// data.
///
/// Throws ConfigError, naming the tensor, for types that DLPack lacks: F4 and F6, whose elements
/// do not fill bytes; BOOL, if the library was built with DLPack older than 0.8; F8, older than
/// 1.1. Consumers may support fewer types: NumPy has no BF16.
DLManagedTensor* to_dlpack(const TensorSet& model, const TensorView& view);

}  // namespace safeshuffle
