// Which tensors PlanOptions::dtype leaves as they are stored, besides those it cannot convert.
#pragma once

#include <string>
#include <vector>

#include "safeshuffle/metadata.hpp"

namespace safeshuffle::plan {

/// Whether engines take this tensor in the type that its file has: scales of quantised layers, and
/// parameters that are used in F32 whatever the model's type is (as in vLLM 0.32); or its name
/// matches one of `patterns` (as those of Selection).
bool keeps_type(const TensorInfo& tensor, const std::vector<std::string>& patterns);

}  // namespace safeshuffle::plan
