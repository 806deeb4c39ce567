#include "synth/header_style.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"

#include "synth/random.hpp"

namespace safeshuffle::synth {
namespace {

using Tensors = std::vector<format::TensorSpec>;

const std::array<HeaderStyle, 7>& known_styles() {
  using enum HeaderStyle::Order;
  static const std::map<std::string, std::string> pt{{"format", "pt"}};
  static const std::array<HeaderStyle, 7> styles{{
      {.order = sorted, .metadata = pt, .alignment = 8},
      {.order = sorted, .metadata = pt, .alignment = 1},
      {.order = hashed, .metadata = pt, .alignment = 1},
      {.order = sorted, .metadata = {}, .alignment = 8},
      {.order = sorted, .metadata = {}, .alignment = 1},
      {.order = hashed, .metadata = {}, .alignment = 1},
      {.order = sorted, .metadata = pt, .alignment = 8, .fill = true},
  }};
  return styles;
}

void sort(Tensors& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(b.dtype, a.name) < std::tie(a.dtype, b.name);
  });
}

// Fisher-Yates; not std::shuffle, whose result differs between standard libraries.
void shuffle(Tensors& tensors, std::uint64_t key, std::uint64_t& draws) {
  for (std::size_t left = tensors.size(); left > 1; --left) {
    std::swap(tensors[left - 1], tensors[random_word(key, draws++) % left]);
  }
}

std::uint64_t size_of(const LayoutFile& file, const HeaderStyle& style) {
  return format::layout_header(file.tensors, style.metadata, style.alignment).file_size;
}

bool meets(std::uint64_t size, std::uint64_t declared, const HeaderStyle& style) {
  return size == declared || (style.fill && size < declared && declared - size <= max_fill);
}

// Offsets have more digits behind large tensors than behind small ones: that is what makes the
// length of a header depend on the order. Any length seen in practice is met by one shuffle in a
// few hundred.
bool shuffle_to_size(LayoutFile& file, const HeaderStyle& style) {
  constexpr int max_shuffles = 2048;
  const std::uint64_t key = random_key(0, file.name);
  std::uint64_t draws = 0;
  for (int i = 0; i < max_shuffles; ++i) {
    shuffle(file.tensors, key, draws);
    if (!file.size || size_of(file, style) == *file.size) return true;
  }
  return false;
}

// Returns the size reached if it is not the declared one.
std::optional<std::uint64_t> arrange(LayoutFile& file, const HeaderStyle& style) {
  sort(file.tensors);
  const std::uint64_t sorted_size = size_of(file, style);
  if (style.order == HeaderStyle::Order::hashed) {
    return shuffle_to_size(file, style) ? std::nullopt : std::optional(sorted_size);
  }
  if (!file.size || meets(sorted_size, *file.size, style)) return std::nullopt;
  return sorted_size;
}

}  // namespace

void apply_style(Layout& layout, const HeaderStyle& style) {
  for (LayoutFile& file : layout.files) {
    const auto reached = arrange(file, style);
    if (!reached) continue;
    throw ConfigError(ErrorRecord{.file = file.name,
                                  .cause = "declared with " + std::to_string(*file.size) +
                                           " bytes, but its tensors and header take " +
                                           std::to_string(*reached)});
  }
  layout.metadata = style.metadata;
  layout.alignment = style.alignment;
}

void apply_known_style(Layout& layout) {
  for (const HeaderStyle& style : known_styles()) {
    const auto fits = [&](LayoutFile& file) { return !arrange(file, style); };
    if (std::all_of(layout.files.begin(), layout.files.end(), fits)) {
      return apply_style(layout, style);
    }
  }
  apply_style(layout, known_styles().front());  // throws the error for the current style
}

}  // namespace safeshuffle::synth
