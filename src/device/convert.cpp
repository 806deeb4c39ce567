#include "device/convert.hpp"

#include "device/convert_x86.hpp"

namespace safeshuffle::device {

ConvertFunction select_convert(DType from, DType to) {
  const ConvertFunction vector = x86_convert(from, to);
  return vector != nullptr ? vector : scalar_convert(from, to);
}

}  // namespace safeshuffle::device
