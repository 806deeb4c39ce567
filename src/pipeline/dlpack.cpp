#include "safeshuffle/dlpack.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "safeshuffle/error.hpp"

#include "pipeline/dlpack_abi.hpp"

namespace safeshuffle {
namespace {

constexpr DLPackVersion version{1, 1};
constexpr DLDataTypeCode last_before_versions = kDLBool;

/// What an exported tensor needs until its deleter is called.
template <class Managed>
struct Export {
  Managed managed{};
  std::shared_ptr<const void> owner;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
};

DLDataTypeCode code_of(DType dtype) {
  switch (dtype) {
    case DType::BOOL:
      return kDLBool;
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
    case DType::F6_E2M3:
      return kDLFloat6_e2m3fn;
    case DType::F6_E3M2:
      return kDLFloat6_e3m2fn;
    case DType::F4:
      return kDLFloat4_e2m1fn;
  }
  throw InternalError("a dtype without a name in DLPack");
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

template <class Managed>
void release(Managed* managed) {
  delete static_cast<Export<Managed>*>(managed->manager_ctx);
}

template <class Managed>
Managed* export_as(const TensorSet& model, const TensorView& view) {
  auto result = std::make_unique<Export<Managed>>();
  result->owner = model.owner();
  result->shape.assign(view.shape.begin(), view.shape.end());
  result->strides = strides_of(result->shape);
  result->managed.dl_tensor = {
      view.bytes == 0 ? nullptr : view.data,
      device_of(model),
      static_cast<std::int32_t>(result->shape.size()),
      {code_of(view.dtype), static_cast<std::uint8_t>(bits(view.dtype)), 1},
      result->shape.data(),
      result->strides.data(),
      0};
  result->managed.manager_ctx = result.get();
  result->managed.deleter = &release<Managed>;
  return &result.release()->managed;
}

}  // namespace

DLManagedTensorVersioned* to_dlpack(const TensorSet& model, const TensorView& view) {
  auto* const exported = export_as<DLManagedTensorVersioned>(model, view);
  exported->version = version;
  return exported;
}

DLManagedTensor* to_unversioned_dlpack(const TensorSet& model, const TensorView& view) {
  if (code_of(view.dtype) > last_before_versions) {
    throw ConfigError(
        ErrorRecord{.tensor = std::string(view.name),
                    .cause = "DLPack before 1.0 has no " + std::string(name(view.dtype))});
  }
  return export_as<DLManagedTensor>(model, view);
}

}  // namespace safeshuffle
