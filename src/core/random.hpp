// Unique names.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace safeshuffle::core {

/// `count` bytes, at most 256, that no other process can predict. Throws InternalError.
std::string random_bytes(std::size_t count);

/// Two lower-case digits for each byte.
std::string hexadecimal(std::string_view bytes);

}  // namespace safeshuffle::core
