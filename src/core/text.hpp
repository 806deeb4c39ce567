// Text for messages and tables.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace safeshuffle::core {

/// `text` with '?' for every control character, so that it stays one line and moves no cursor.
std::string printable(std::string_view text);

/// The first `limit` bytes of `text`, cut between UTF-8 characters, and "..." if that is not all.
std::string shortened(std::string_view text, std::size_t limit);

/// "line 3, column 5": the position of byte `offset` of `text`. Both count from 1, columns in UTF-8
/// characters.
std::string line_and_column(std::string_view text, std::size_t offset);

/// The most names that `enumerate` lists.
inline constexpr std::size_t most_enumerated = 8;

/// "a, b, c and 4 more". `total`: number of all names, if `names` are only the first of them.
std::string enumerate(const std::vector<std::string>& names, std::size_t total = 0);

/// "[2, 3]".
std::string list_text(const std::vector<std::uint64_t>& numbers);

/// "1 rank", "4 ranks"; `noun` takes an s.
std::string plural(std::uint64_t count, std::string_view noun);

/// "3 s", "0.5 s".
std::string seconds_text(std::chrono::milliseconds time);

}  // namespace safeshuffle::core
