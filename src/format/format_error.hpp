// Throwing a FormatError with everything known about it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "safeshuffle/error.hpp"

namespace safeshuffle::format {

/// The file and position of an error.
struct Place {
  const std::string& path;
  std::optional<std::uint64_t> offset = {};  ///< bytes from the start of the file
  std::string tensor = {};                   ///< its name, where known
};

[[noreturn]] inline void raise_format(FormatErrc code, const Place& place, std::string cause) {
  throw FormatError(ErrorRecord{.code = static_cast<std::int32_t>(code),
                                .file = place.path,
                                .tensor = place.tensor,
                                .offset = place.offset,
                                .cause = std::move(cause)});
}

}  // namespace safeshuffle::format
