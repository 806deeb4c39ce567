// What a rank has asked servers for. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace safeshuffle {

/// HTTP requests for objects at URLs.
struct Requests {
  std::uint64_t made = 0;
  std::uint64_t repeated = 0;    ///< because there was no answer, or one that says to try again
  std::uint64_t raced = 0;       ///< made twice at a time, because the first was unusually late
  std::uint64_t kept_bytes = 0;  ///< written to RemoteOptions::cache
  std::string not_kept;          ///< why not all was; empty if it was
};

/// ReadChoice::reason (report.hpp) of what is at a URL.
inline constexpr std::string_view over_http = "over HTTP";

}  // namespace safeshuffle
