// The part of cuFile that is used: NVIDIA's C library for GPUDirect Storage. It is looked up at run
// time and declared here, so that building takes no header of it and programs start without it. The
// facts are those of cufile.h in the packages nvidia-cufile-cu12 1.14 and nvidia-cufile 1.20, which
// agree in them; tests/gpu/cufile_api_test.cpp compares them with the header, where there is one.
#pragma once

#include <array>
#include <cstddef>
#include <cuda.h>
#include <sys/types.h>

namespace safeshuffle::device::cufile {

/// What most functions return.
struct Status {
  int code;       ///< 0: success; else a code above 5000
  CUresult cuda;  ///< if the code is that of a failed call of the CUDA driver
};

using FileHandle = void*;

/// A file to be registered.
struct FileDescription {
  int type = 1;  // a Linux file descriptor
  union {
    int descriptor;
    void* unused;
  } handle{};
  const void* operations = nullptr;  // of file systems in user space
};

/// Of the driver.
struct Properties {
  struct {
    unsigned major_version = 0;  ///< of the kernel driver nvidia-fs; 0.0 if it is not loaded
    unsigned minor_version = 0;
    std::size_t poll_threshold = 0;
    std::size_t most_direct_bytes = 0;
    unsigned status_flags = 0;
    unsigned control_flags = 0;
  } nvfs;
  unsigned features = 0;
  std::array<unsigned, 5> limits{};
  std::array<std::byte, 512> later{};  // for fields that later versions may append
};

/// Of Properties::features: transfers between storage and GPU without nvidia-fs.
inline constexpr unsigned peer_to_peer_feature = 1U << 4;

/// Codes that are not simply reported.
inline constexpr int cuda_driver_error = 5011;
inline constexpr int driver_already_open = 5026;

using DriverOpen = Status();
using DriverGetProperties = Status(Properties*);
using HandleRegister = Status(FileHandle*, FileDescription*);
using HandleDeregister = void(FileHandle);
using BufRegister = Status(const void* memory, std::size_t bytes, int flags);
using BufDeregister = Status(const void* memory);

/// Returns the number of bytes read; -1 with errno, or a code negated.
using Read = ssize_t(FileHandle, void* memory, std::size_t bytes, off_t file_offset,
                     off_t memory_offset);

}  // namespace safeshuffle::device::cufile
