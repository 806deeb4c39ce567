// Throwing a FormatError with everything known about it.
#pragma once

#include <cstdint>
#include <string>

#include "safeshuffle/error.hpp"

namespace safeshuffle::format {

/// The file and position of an error.
struct Place {
  const std::string& path;
  std::uint64_t offset = 0;  ///< bytes from the start of the file
  std::string tensor = {};   ///< its name, where known
};

[[noreturn]] void raise_format(FormatErrc code, const Place& place, std::string cause);

}  // namespace safeshuffle::format
