// Names of tensors with `*` for numbers, such as that of a layer.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace safeshuffle::placement {

/// What each `*` of a pattern stands for, as digits.
using Numbers = std::vector<std::string>;

/// How many `*` a pattern has.
std::size_t count_numbers(std::string_view pattern);

/// The numbers with which `pattern` is `name`: each `*` stands for a whole run of digits. None if
/// it is another name.
std::optional<Numbers> match_numbers(std::string_view pattern, std::string_view name);

/// The name that `pattern` becomes. Requires as many numbers as it has `*`.
std::string with_numbers(std::string_view pattern, const Numbers& numbers);

}  // namespace safeshuffle::placement
