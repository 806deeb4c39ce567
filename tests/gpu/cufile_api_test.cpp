// The declarations of cuFile against NVIDIA's own, where the toolkit has the header.
#include "device/cuda/cufile_api.hpp"

#if __has_include(<cufile.h>)

#include <cstddef>
#include <cufile.h>
#include <type_traits>

namespace {

namespace cufile = safeshuffle::device::cufile;

static_assert(sizeof(cufile::Status) == sizeof(CUfileError_t));
static_assert(offsetof(cufile::Status, cuda) == offsetof(CUfileError_t, cu_err));
static_assert(cufile::cuda_driver_error == CU_FILE_CUDA_DRIVER_ERROR);
static_assert(cufile::driver_already_open == CU_FILE_DRIVER_ALREADY_OPEN);
static_assert(std::is_same_v<cufile::FileHandle, CUfileHandle_t>);
static_assert(sizeof(cufile::FileDescription) == sizeof(CUfileDescr_t));
static_assert(offsetof(cufile::FileDescription, handle) == offsetof(CUfileDescr_t, handle));
static_assert(offsetof(cufile::FileDescription, operations) == offsetof(CUfileDescr_t, fs_ops));
static_assert(cufile::FileDescription{}.type == CU_FILE_HANDLE_TYPE_OPAQUE_FD);
static_assert(sizeof(cufile::Properties) >= sizeof(CUfileDrvProps_t));
static_assert(offsetof(cufile::Properties, nvfs.minor_version) ==
              offsetof(CUfileDrvProps_t, nvfs.minor_version));
static_assert(offsetof(cufile::Properties, features) == offsetof(CUfileDrvProps_t, fflags));
static_assert(std::is_same_v<decltype(cuFileRead), cufile::Read>);
static_assert(std::is_same_v<decltype(cuFileHandleDeregister), cufile::HandleDeregister>);

}  // namespace

#endif
