// Element after element, for any CPU; also the tail of the vector code.
#pragma once

#include <cstddef>
#include <cstring>

#include "device/convert_element.hpp"

namespace safeshuffle::device {

template <DType From, DType To>
struct ScalarConvert {
  static void run(const std::byte* source, std::byte* destination, std::size_t count) {
    typename Element<From>::Bits value{};
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(&value, source + i * sizeof value, sizeof value);
      const auto result = convert_element<From, To>(value);
      std::memcpy(destination + i * sizeof result, &result, sizeof result);
    }
  }
};

}  // namespace safeshuffle::device
