// Arithmetic over named numbers, with which layouts define shapes: `4 * (heads + 2) * head_dim`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace safeshuffle::synth {

/// Numbers by name.
using Values = std::map<std::string, std::uint64_t, std::less<>>;

/// Evaluates whole numbers, names, parentheses and `+ * /`, with the usual precedence. Empty if a
/// division leaves a remainder. Throws ConfigError if `expression` is malformed, names an unknown
/// value, divides by zero, or overflows 64 bits.
std::optional<std::uint64_t> evaluate(std::string_view expression, const Values& values);

}  // namespace safeshuffle::synth
