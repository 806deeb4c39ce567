// Where in the model stored tensors are, as far as their names show.
#pragma once

#include <cstdint>

#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// The layers that are read, in full or in part. A layer is a numbered module, such as
/// `model.layers.7`, of the stack that has most bytes; numbers of other stacks, such as the blocks
/// of a vision tower, count no layers. Of a name, the first component that is a number counts, so
/// the experts of a layer belong to it.
///
/// What follows the layers are final norms, heads and what predicts further tokens, by their usual
/// names. Everything else precedes the layers: an embedding read too late would delay all of them,
/// a norm read too early delays nothing. So does everything if no name has a number.
Layers find_layers(const Schedule& schedule);

}  // namespace safeshuffle::plan
