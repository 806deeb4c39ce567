// Sizes and counts for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace safeshuffle::app {

/// Bytes → "1.38 GB", "512 B": three digits, powers of 1000.
std::string format_size(std::uint64_t bytes);

/// Bytes → "64 MiB" if that is exact in a unit that is a power of 1024, else as format_size.
std::string format_binary_size(std::uint64_t bytes);

/// "1 wave", "7 waves"; `noun` takes an s.
std::string count(std::uint64_t number, std::string_view noun);

}  // namespace safeshuffle::app
