// Smaller versions of a layout, for machines without hundreds of gigabytes to spare.
#pragma once

#include "synth/layout.hpp"

namespace safeshuffle::synth {

/// The layout with about `scale` × its bytes: the same files, tensors, layers and heads, but
/// narrower. Each extent remains a multiple of every number up to 64 that divides the original, so
/// whatever can be cut for a group of that size still can. Widths therefore move in steps, and have
/// a least value (docs/layouts.md): ask `tensor_bytes` what came of it. Declared file sizes are
/// dropped unless `scale` is 1. Throws ConfigError unless 0 < scale <= 1.
Layout scaled(const Layout& layout, double scale);

}  // namespace safeshuffle::synth
