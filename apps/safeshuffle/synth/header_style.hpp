// How the writers of real checkpoints lay out a header. For layouts that do not specify it, the
// style is inferred from the declared file sizes.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "synth/layout.hpp"

namespace safeshuffle::synth {

struct HeaderStyle {
  enum class Order : std::uint8_t {
    sorted,  ///< by type, widest first, then by name: the reference library since 0.3
    /// The order of a hash map, different in each file, as early versions of the reference library
    /// wrote it. The true order is lost; a shuffle that gives the file's declared size is used.
    hashed,
  };
  Order order = Order::sorted;
  std::map<std::string, std::string> metadata;
  std::uint64_t alignment = 8;  ///< of the data's start; 1: no padding
  bool fill = false;            ///< pad further, by up to `max_fill`, to the declared size
};

/// A page: no known writer uses more padding, so with more the declared size must be wrong.
inline constexpr std::uint64_t max_fill = 4096;

/// Puts the tensors of each file into the order of `style` and sets metadata and alignment. Throws
/// ConfigError, naming the file and both sizes, if a declared size is not met.
void apply_style(Layout& layout, const HeaderStyle& style);

/// Applies the first known style that meets all declared sizes. Throws ConfigError if none does.
void apply_known_style(Layout& layout);

}  // namespace safeshuffle::synth
