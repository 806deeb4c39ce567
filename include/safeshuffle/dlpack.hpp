// Interop with DLPack (https://dmlc.github.io/dlpack), through which Python frameworks use tensors
// without a copy.
#pragma once

#include "safeshuffle/tensor.hpp"

// As <dlpack/dlpack.h> declares them, the second one since DLPack 1.0; it is not needed here.
struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace safeshuffle {

/// Exports `view`, a tensor of `model`, without copying the data. The result belongs to the caller,
/// or to a consumer it is passed to; the owner must call its `deleter` once, on any thread. Until
/// then it keeps the memory of the whole model alive, as a copy of `model` does.
///
/// The data is complete: consumers need not wait for a stream. All consumers share it, writes
/// included. Strides are always set, in elements, row-major. A tensor without elements has null
/// data. Elements of F4 and F6 are packed. Consumers may support fewer types: NumPy has no BF16,
/// and many have none of 8 bits or less. They can take the bytes: of a copy of `view` with dtype U8
/// and the number of bytes as its only extent.
DLManagedTensorVersioned* to_dlpack(const TensorSet& model, const TensorView& view);

/// The same for consumers of DLPack before 1.0. Throws ConfigError, naming the tensor, for types
/// that it lacked: F8, F6 and F4.
DLManagedTensor* to_unversioned_dlpack(const TensorSet& model, const TensorView& view);

}  // namespace safeshuffle
