// A few C functions through which Python can load a checkpoint and take its tensors: see
// safeshuffle_dlpack.py next to this file. No function throws; one that fails returns null and
// stores a message for `model_error`, per thread.
#include <string>

#include <safeshuffle/dlpack.hpp>
#include <safeshuffle/loader.hpp>

namespace {

/// The name by which consumers recognise a capsule with a tensor.
constexpr char unconsumed[] = "dltensor";

thread_local std::string message;

safeshuffle::Device device_named(const std::string& name) {
  if (name == "cuda") return safeshuffle::Device::cuda();
  if (name == "host") return safeshuffle::Device::host();
  throw safeshuffle::ConfigError("the device must be host or cuda, not " + name);
}

template <typename Step>
auto null_on_failure(Step step) noexcept -> decltype(step()) {
  try {
    return step();
  } catch (const std::exception& error) {
    message = error.what();
    return nullptr;
  }
}

}  // namespace

extern "C" {

// Functions of Python's stable ABI, in the interpreter that loads this library.
// NOLINTBEGIN(readability-identifier-naming)
extern void* PyExc_BufferError;
void PyErr_SetString(void* type, const char* message);
void* PyCapsule_New(void* pointer, const char* name, void (*destructor)(void* capsule));
int PyCapsule_IsValid(void* capsule, const char* name);
void* PyCapsule_GetPointer(void* capsule, const char* name);
// NOLINTEND(readability-identifier-naming)

/// A capsule that was not consumed still owns its tensor; a consumer renames it.
static void discard(void* capsule) {
  if (PyCapsule_IsValid(capsule, unconsumed) == 0) return;
  auto* const tensor = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, unconsumed));
  tensor->deleter(tensor);
}

/// The whole checkpoint on one device, "host" or "cuda"; free it with `model_free`.
safeshuffle::TensorSet* model_load(const char* path, const char* device) {
  return null_on_failure([&] {
    safeshuffle::Options options;
    options.tp_plan = "replicate";
    const auto group = safeshuffle::self(device_named(device));
    return new safeshuffle::TensorSet(safeshuffle::load(path, group, options));
  });
}

/// Exported tensors outlive the model.
void model_free(safeshuffle::TensorSet* model) {
  delete model;
}

std::size_t model_size(const safeshuffle::TensorSet* model) {
  return model->size();
}

/// UTF-8, `*length` bytes of it; valid as long as the model.
const char* model_name(const safeshuffle::TensorSet* model, std::size_t index,
                       std::size_t* length) {
  const safeshuffle::TensorView& view = model->begin()[index];
  *length = view.name.size();
  return view.name.data();
}

/// The device of the tensors: DLPack's device type, and its number.
int model_device(const safeshuffle::TensorSet* model, int* number) {
  *number = model->ordinal();
  return model->device() == safeshuffle::DeviceKind::cuda ? kDLCUDA : kDLCPU;
}

/// A new Python object that holds the tensor in DLPack's form. Null, with Python's error set, if
/// that fails. Needs the interpreter's lock.
void* model_export(const safeshuffle::TensorSet* model, std::size_t index) {
  DLManagedTensor* const tensor =
      null_on_failure([&] { return safeshuffle::to_dlpack(*model, model->begin()[index]); });
  if (tensor == nullptr) {
    PyErr_SetString(PyExc_BufferError, message.c_str());
    return nullptr;
  }
  void* const capsule = PyCapsule_New(tensor, unconsumed, &discard);
  if (capsule == nullptr) tensor->deleter(tensor);
  return capsule;
}

const char* model_error() {
  return message.c_str();
}

}  // extern "C"
