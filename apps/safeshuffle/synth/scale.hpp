// Smaller versions of a layout, for machines without hundreds of gigabytes to spare.
#pragma once

#include "synth/layout.hpp"

namespace safeshuffle::synth {

/// The layout with about `scale` × its bytes: the same files, tensors, layers and heads, but
/// narrower. Each extent remains a multiple of every number up to 64 that divides the original, so
/// whatever can be split for a group of that size still can. Widths therefore change in steps and
/// have a minimum (docs/layouts.md): `scale_of` gives the actual scale. Declared file sizes are
/// dropped unless `scale` is 1. Throws ConfigError unless 0 < scale <= 1.
Layout scaled(const Layout& layout, double scale);

/// Bytes of the tensors of `layout` relative to those of `original`; 1 if that has none.
double scale_of(const Layout& layout, const Layout& original);

}  // namespace safeshuffle::synth
