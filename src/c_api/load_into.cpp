// Loads of the C interface into memory of the caller.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "safeshuffle/binding.hpp"
#include "safeshuffle/error.hpp"
#include "safeshuffle/report.hpp"
#include "safeshuffle/session.hpp"

#include "c_api/error.hpp"
#include "c_api/session.hpp"
#include "pipeline/dlpack_abi.hpp"

using namespace safeshuffle;
using c_api::guarded;

namespace {

DType dtype_named(const char* text, const char* destination) {
  if (const auto dtype = parse_dtype(text)) return *dtype;
  throw ConfigError("'" + std::string(destination) + "' has the dtype '" + text +
                    "', which safetensors does not have");
}

Shape numbers(const uint64_t* begin, size_t count) {
  return begin == nullptr ? Shape() : Shape(begin, begin + count);
}

Binding binding_of(const safeshuffle_binding& given) {
  const bool is_zeros = given.tensor == nullptr;
  return {{is_zeros ? "" : given.tensor, given.offset, numbers(given.sizes, given.dims),
           numbers(given.strides, given.dims), is_zeros},
          static_cast<std::byte*>(given.data),
          dtype_named(given.dtype, given.name),
          numbers(given.data_strides, given.dims),
          given.name};
}

Parameter parameter_of(const safeshuffle_parameter& given) {
  return {given.name, static_cast<std::byte*>(given.data), dtype_named(given.dtype, given.name),
          numbers(given.shape, given.dims), numbers(given.strides, given.dims)};
}

std::shared_ptr<void> owner_of(const safeshuffle_lender* lender) {
  if (lender == nullptr) return nullptr;
  return {lender->context, lender->release};
}

template <class Made, class Given>
safeshuffle_error* load_into(safeshuffle_session* session, const Given* given, size_t count,
                             const safeshuffle_lender* lender, Made (*make)(const Given&)) {
  return guarded([&] {
    std::shared_ptr<void> owner = owner_of(lender);
    std::vector<Made> list;
    list.reserve(count);
    for (const Given& each : std::span(given, count)) list.push_back(make(each));
    session->report = to_json(session->open().load_into(list, std::move(owner)));
  });
}

// Of what tensors of frameworks in memory can be.
DType dtype_of(const DLDataType& type) {
  struct Known {
    DLDataTypeCode code;
    unsigned bits;
    DType dtype;
  };
  static constexpr Known all[]{
      {kDLBool, 8, DType::BOOL},
      {kDLInt, 8, DType::I8},
      {kDLInt, 16, DType::I16},
      {kDLInt, 32, DType::I32},
      {kDLInt, 64, DType::I64},
      {kDLUInt, 8, DType::U8},
      {kDLUInt, 16, DType::U16},
      {kDLUInt, 32, DType::U32},
      {kDLUInt, 64, DType::U64},
      {kDLFloat, 16, DType::F16},
      {kDLFloat, 32, DType::F32},
      {kDLFloat, 64, DType::F64},
      {kDLBfloat, 16, DType::BF16},
      {kDLComplex, 64, DType::C64},
      {kDLFloat8_e4m3fn, 8, DType::F8_E4M3},
      {kDLFloat8_e4m3fnuz, 8, DType::F8_E4M3FNUZ},
      {kDLFloat8_e5m2, 8, DType::F8_E5M2},
      {kDLFloat8_e5m2fnuz, 8, DType::F8_E5M2FNUZ},
      {kDLFloat8_e8m0fnu, 8, DType::F8_E8M0},
  };
  for (const Known& known : all) {
    if (known.code == type.code && known.bits == type.bits && type.lanes == 1) return known.dtype;
  }
  throw ConfigError("DLPack's type " + std::to_string(type.code) + " of " +
                    std::to_string(type.bits) + " bits is not one of safetensors");
}

}  // namespace

safeshuffle_error* safeshuffle_session_load_into(safeshuffle_session* session,
                                                 const safeshuffle_binding* bindings, size_t count,
                                                 const safeshuffle_lender* lender) {
  return load_into(session, bindings, count, lender, &binding_of);
}

safeshuffle_error* safeshuffle_session_load_parameters(safeshuffle_session* session,
                                                       const safeshuffle_parameter* parameters,
                                                       size_t count,
                                                       const safeshuffle_lender* lender) {
  return load_into(session, parameters, count, lender, &parameter_of);
}

safeshuffle_error* safeshuffle_parameter_from_dlpack(const void* dl_tensor, const char* name,
                                                     uint64_t* shape, uint64_t* strides,
                                                     safeshuffle_parameter* parameter) {
  return guarded([&] {
    const auto& tensor = *static_cast<const DLTensor*>(dl_tensor);
    const auto dims = static_cast<size_t>(tensor.ndim);
    for (size_t i = 0; i < dims; ++i) {
      shape[i] = static_cast<uint64_t>(tensor.shape[i]);
      if (tensor.strides == nullptr) continue;
      if (tensor.strides[i] < 0) {
        throw ConfigError("'" + std::string(name) + "' has a negative stride");
      }
      strides[i] = static_cast<uint64_t>(tensor.strides[i]);
    }
    *parameter = {.name = name,
                  .data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset,
                  .dtype = safeshuffle::name(dtype_of(tensor.dtype)).data(),
                  .dims = dims,
                  .shape = shape,
                  .strides = tensor.strides == nullptr ? nullptr : strides};
  });
}
