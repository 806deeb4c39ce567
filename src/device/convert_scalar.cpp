#include "device/convert_scalar.hpp"

#include "device/convert_table.hpp"

namespace safeshuffle::device {

ConvertFunction scalar_convert(DType from, DType to) {
  return convert_function<ScalarConvert>(from, to);
}

}  // namespace safeshuffle::device
