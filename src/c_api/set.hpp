// What is behind the handle of loaded tensors.
#pragma once

#include <string>
#include <vector>

#include "safeshuffle/safeshuffle.h"
#include "safeshuffle/tensor.hpp"

namespace safeshuffle::c_api {

/// Valid as long as the view's tensor and its name.
safeshuffle_tensor describe(const TensorView& view);

}  // namespace safeshuffle::c_api

struct safeshuffle_set {
  explicit safeshuffle_set(safeshuffle::TensorSet loaded);

  safeshuffle::TensorSet set;
  std::vector<safeshuffle_tensor> tensors;
  std::string report;
};
