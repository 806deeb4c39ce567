// Validation of UTF-8.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace safeshuffle::format {

/// Position of the first byte that does not begin a well-formed UTF-8 sequence (Unicode 15, table
/// 3-7: no overlong forms, surrogates, or code points above U+10FFFF); empty if all is well.
std::optional<std::size_t> find_invalid_utf8(std::string_view text) noexcept;

}  // namespace safeshuffle::format
