// Verification against any source.
#pragma once

#include <vector>

#include "safeshuffle/communicator.hpp"
#include "safeshuffle/options.hpp"
#include "safeshuffle/tensor.hpp"

#include "source/source.hpp"

namespace safeshuffle::output {

/// As safeshuffle::verify, for a model that was loaded from `source`.
std::vector<double> verify(const source::Source& source, const TensorSet& model,
                           const Communicator& comm, const Options& options);

}  // namespace safeshuffle::output
