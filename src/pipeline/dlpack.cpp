#include "safeshuffle/dlpack.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "safeshuffle/error.hpp"

namespace safeshuffle {
namespace {

/// What an exported tensor needs until its deleter is called.
struct Export {
  DLManagedTensor managed{};
  std::shared_ptr<const void> owner;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
};

/// Types with a code in all versions of DLPack.
std::optional<DLDataTypeCode> basic_code(DType dtype) {
  switch (dtype) {
    case DType::I8:
    case DType::I16:
    case DType::I32:
    case DType::I64:
      return kDLInt;
    case DType::U8:
    case DType::U16:
    case DType::U32:
    case DType::U64:
      return kDLUInt;
    case DType::F16:
    case DType::F32:
    case DType::F64:
      return kDLFloat;
    case DType::BF16:
      return kDLBfloat;
    case DType::C64:
      return kDLComplex;
    default:
      return std::nullopt;
  }
}

/// Types whose code was added later.
std::optional<DLDataTypeCode> newer_code(DType dtype) {
  switch (dtype) {
#if DLPACK_VERSION >= 80 || DLPACK_MAJOR_VERSION >= 1
    case DType::BOOL:
      return kDLBool;
#endif
#if DLPACK_MAJOR_VERSION > 1 || (DLPACK_MAJOR_VERSION == 1 && DLPACK_MINOR_VERSION >= 1)
    case DType::F8_E5M2:
      return kDLFloat8_e5m2;
    case DType::F8_E4M3:
      return kDLFloat8_e4m3fn;
    case DType::F8_E8M0:
      return kDLFloat8_e8m0fnu;
    case DType::F8_E4M3FNUZ:
      return kDLFloat8_e4m3fnuz;
    case DType::F8_E5M2FNUZ:
      return kDLFloat8_e5m2fnuz;
#endif
    default:
      return std::nullopt;
  }
}

DLDataType dtype_of(const TensorView& view) {
  auto code = basic_code(view.dtype);
  if (!code) code = newer_code(view.dtype);
  if (!code) {
    throw ConfigError(
        ErrorRecord{.tensor = std::string(view.name),
                    .cause = "the DLPack version that this library was built with has no " +
                             std::string(name(view.dtype))});
  }
  return {static_cast<std::uint8_t>(*code), static_cast<std::uint8_t>(bits(view.dtype)), 1};
}

DLDevice device_of(const TensorSet& model) {
  return {model.device() == DeviceKind::cuda ? kDLCUDA : kDLCPU, model.ordinal()};
}

/// Row-major, in elements; an empty dimension counts as one element, as in frameworks.
std::vector<std::int64_t> strides_of(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

void release(DLManagedTensor* managed) {
  delete static_cast<Export*>(managed->manager_ctx);
}

}  // namespace

DLManagedTensor* to_dlpack(const TensorSet& model, const TensorView& view) {
  const DLDataType dtype = dtype_of(view);
  auto result = std::make_unique<Export>();
  result->owner = model.owner();
  result->shape.assign(view.shape.begin(), view.shape.end());
  result->strides = strides_of(result->shape);
  result->managed.dl_tensor = {view.bytes == 0 ? nullptr : view.data,
                               device_of(model),
                               static_cast<std::int32_t>(result->shape.size()),
                               dtype,
                               result->shape.data(),
                               result->strides.data(),
                               0};
  result->managed.manager_ctx = result.get();
  result->managed.deleter = &release;
  return &result.release()->managed;
}

}  // namespace safeshuffle
