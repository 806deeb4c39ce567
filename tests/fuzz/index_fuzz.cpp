// libFuzzer: any bytes as a model.safetensors.index.json. The parser may refuse them with a
// FormatError and nothing else.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "safeshuffle/error.hpp"

#include "format/index.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    safeshuffle::format::parse_index({reinterpret_cast<const char*>(data), size}, "fuzzed");
  } catch (const safeshuffle::FormatError&) {
  }
  return 0;
}
