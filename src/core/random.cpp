#include "core/random.hpp"

#include <unistd.h>

#include "safeshuffle/error.hpp"

namespace safeshuffle::core {

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  if (::getentropy(bytes.data(), bytes.size()) != 0) throw InternalError("no random numbers");
  return bytes;
}

std::string hexadecimal(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += digits[value >> 4];
    text += digits[value & 15];
  }
  return text;
}

}  // namespace safeshuffle::core
