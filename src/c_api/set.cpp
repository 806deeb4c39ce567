#include "c_api/set.hpp"

#include <cstdint>
#include <dlfcn.h>
#include <span>
#include <string>
#include <utility>

#include "safeshuffle/dlpack.hpp"
#include "safeshuffle/error.hpp"
#include "safeshuffle/report.hpp"

#include "c_api/error.hpp"
#include "pipeline/dlpack_abi.hpp"

using namespace safeshuffle;
using c_api::guarded;

namespace safeshuffle::c_api {

// Names are those of std::string, and of literals: a zero follows.
safeshuffle_tensor describe(const TensorView& view) {
  return {.name = view.name.data(),
          .dtype = name(view.dtype).data(),
          .dims = view.shape.size(),
          .shape = view.shape.data(),
          .bytes = view.bytes,
          .data = view.data,
          .file = nullptr,
          .order = view.index};
}

}  // namespace safeshuffle::c_api

safeshuffle_set::safeshuffle_set(TensorSet loaded)
    : set(std::move(loaded)), report(to_json(set.report())) {
  tensors.reserve(set.size());
  for (const TensorView& view : set) tensors.push_back(c_api::describe(view));
}

void safeshuffle_set_free(safeshuffle_set* set) {
  delete set;
}

const safeshuffle_tensor* safeshuffle_set_tensors(const safeshuffle_set* set, size_t* count) {
  *count = set->tensors.size();
  return set->tensors.data();
}

int32_t safeshuffle_set_device(const safeshuffle_set* set, int32_t* ordinal) {
  *ordinal = set->set.ordinal();
  return set->set.device() == DeviceKind::cuda ? kDLCUDA : kDLCPU;
}

const char* safeshuffle_set_report(const safeshuffle_set* set) {
  return set->report.c_str();
}

safeshuffle_error* safeshuffle_set_to_dlpack(const safeshuffle_set* set, size_t index,
                                             int32_t versioned, int32_t as_bytes, void** managed) {
  return guarded([&] {
    if (index >= set->set.size()) {
      throw ConfigError("there is no tensor " + std::to_string(index) + " in a set of " +
                        std::to_string(set->set.size()));
    }
    TensorView view = set->set.begin()[index];
    if (as_bytes != 0) {
      view.dtype = DType::U8;
      view.shape = std::span(&view.bytes, 1);
    }
    *managed = versioned != 0 ? static_cast<void*>(to_dlpack(set->set, view))
                              : static_cast<void*>(to_unversioned_dlpack(set->set, view));
  });
}

// Python's functions are those of the process that loads this library, if it has any.
void safeshuffle_release_capsule(void* capsule) {
  using IsValid = int (*)(void*, const char*);
  using GetPointer = void* (*)(void*, const char*);
  const auto is_valid = reinterpret_cast<IsValid>(::dlsym(RTLD_DEFAULT, "PyCapsule_IsValid"));
  const auto get_pointer =
      reinterpret_cast<GetPointer>(::dlsym(RTLD_DEFAULT, "PyCapsule_GetPointer"));
  if (is_valid == nullptr || get_pointer == nullptr) return;
  if (is_valid(capsule, "dltensor") != 0) {
    auto* const tensor = static_cast<DLManagedTensor*>(get_pointer(capsule, "dltensor"));
    tensor->deleter(tensor);
  } else if (is_valid(capsule, "dltensor_versioned") != 0) {
    auto* const tensor =
        static_cast<DLManagedTensorVersioned*>(get_pointer(capsule, "dltensor_versioned"));
    tensor->deleter(tensor);
  }
}
