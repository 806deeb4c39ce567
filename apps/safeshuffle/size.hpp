// Sizes and counts as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace safeshuffle::app {

/// "4096", "4KiB", "1.5GiB", "2GB" → bytes; units B, KiB…PiB (powers of 1024) and kB/KB…PB (powers
/// of 1000), ignoring case. Empty if it is not a size, is negative, or does not fit 64 bits.
std::optional<std::uint64_t> parse_size(std::string_view text);

/// Bytes → "1.38 GB", "512 B": three digits, powers of 1000.
std::string format_size(std::uint64_t bytes);

/// Bytes → "64 MiB" if that is exact in a unit that is a power of 1024, else as format_size.
std::string format_binary_size(std::uint64_t bytes);

/// "1 wave", "7 waves"; `noun` takes an s.
std::string count(std::uint64_t number, std::string_view noun);

}  // namespace safeshuffle::app
