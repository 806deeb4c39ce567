#include "placement/name_pattern.hpp"

#include <algorithm>

namespace safeshuffle::placement {

std::size_t count_numbers(std::string_view pattern) {
  return static_cast<std::size_t>(std::ranges::count(pattern, '*'));
}

std::optional<Numbers> match_numbers(std::string_view pattern, std::string_view name) {
  Numbers numbers;
  for (const char c : pattern) {
    if (c != '*') {
      if (!name.starts_with(c)) return std::nullopt;
      name.remove_prefix(1);
      continue;
    }
    const std::string_view digits =
        name.substr(0, std::min(name.find_first_not_of("0123456789"), name.size()));
    if (digits.empty()) return std::nullopt;
    numbers.emplace_back(digits);
    name.remove_prefix(digits.size());
  }
  return name.empty() ? std::optional(std::move(numbers)) : std::nullopt;
}

std::string with_numbers(std::string_view pattern, const Numbers& numbers) {
  std::string name;
  auto number = numbers.begin();
  for (const char c : pattern) {
    if (c == '*') {
      name += *number++;
    } else {
      name += c;
    }
  }
  return name;
}

}  // namespace safeshuffle::placement
