#include "size.hpp"

#include <array>

#include <fmt/format.h>

namespace safeshuffle::app {

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
