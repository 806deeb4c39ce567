#include "size.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

namespace safeshuffle::app {
namespace {

constexpr std::string_view prefixes = "kmgtp";

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

// "", "b", "k", "kb", "kib", "m", ... → bytes per unit.
std::optional<double> unit_bytes(std::string unit) {
  if (!unit.empty() && unit.back() == 'b') unit.pop_back();
  if (unit.empty()) return 1;
  const std::size_t power = prefixes.find(unit.front());
  const bool binary = unit.size() == 2 && unit.back() == 'i';
  if (power == std::string_view::npos || (unit.size() > 1 && !binary)) return std::nullopt;
  return std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
}

}  // namespace

std::optional<std::uint64_t> parse_size(std::string_view text) {
  const std::string number(text);
  if (number.empty() || std::isdigit(static_cast<unsigned char>(number.front())) == 0) {
    return std::nullopt;
  }
  const std::size_t end = number.find_first_not_of("0123456789.");
  const std::string digits = number.substr(0, end);
  if (std::count(digits.begin(), digits.end(), '.') > 1) return std::nullopt;
  const auto unit = unit_bytes(lower(end == std::string::npos ? "" : number.substr(end)));
  if (!unit) return std::nullopt;
  const double bytes = std::strtod(digits.c_str(), nullptr) * *unit;
  // Doubles count whole bytes exactly up to 2^53, far above any memory or file.
  if (!(bytes < 9.007199254740992e15)) return std::nullopt;
  return static_cast<std::uint64_t>(std::llround(bytes));
}

std::string format_size(std::uint64_t bytes) {
  static constexpr std::array<const char*, 6> units{"kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (value /= 1000; value >= 999.5 && unit + 1 < units.size(); value /= 1000) ++unit;
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, units[unit]);
}

std::string format_binary_size(std::uint64_t bytes) {
  static constexpr std::array<const char*, 5> units{"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes == 0 || bytes % 1024 != 0) return format_size(bytes);
  std::size_t unit = 0;
  for (bytes /= 1024; bytes % 1024 == 0 && unit + 1 < units.size(); bytes /= 1024) ++unit;
  return fmt::format("{} {}", bytes, units[unit]);
}

std::string count(std::uint64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

}  // namespace safeshuffle::app
