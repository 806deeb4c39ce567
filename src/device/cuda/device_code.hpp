// Support for code that is compiled for the GPU and, so that it can be tested anywhere, for the
// CPU: qualifiers, and GPU instructions with their CPU equivalents.
#pragma once

#include <cassert>
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define SAFESHUFFLE_DEVICE_CODE __host__ __device__ __forceinline__
#else
#define SAFESHUFFLE_DEVICE_CODE inline
#endif

#ifdef __CUDA_ARCH__
#define SAFESHUFFLE_UNROLL _Pragma("unroll")
#define SAFESHUFFLE_NO_UNROLL _Pragma("unroll 1")
#else
#define SAFESHUFFLE_UNROLL
#define SAFESHUFFLE_NO_UNROLL
#endif

namespace safeshuffle::device {

/// 16 bytes as the registers hold them, the first byte lowest.
struct Vector {
  std::uint32_t words[4] = {};
};

/// The low word of (high:low) >> bits; bits < 32.
SAFESHUFFLE_DEVICE_CODE std::uint32_t funnel_shift(std::uint32_t low, std::uint32_t high,
                                                   unsigned bits) {
#ifdef __CUDA_ARCH__
  return __funnelshift_r(low, high, bits);
#else
  return static_cast<std::uint32_t>(((std::uint64_t{high} << 32) | low) >> bits);
#endif
}

/// The high half of a × b.
SAFESHUFFLE_DEVICE_CODE std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
#ifdef __CUDA_ARCH__
  return __umul64hi(a, b);
#else
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((Wide{a} * b) >> 64);
#endif
}

/// Loads from an aligned address whose content is constant while the kernel runs.
SAFESHUFFLE_DEVICE_CODE Vector load_vector(std::uintptr_t address) {
#ifdef __CUDA_ARCH__
  const uint4 loaded = __ldg(reinterpret_cast<const uint4*>(address));
  return {{loaded.x, loaded.y, loaded.z, loaded.w}};
#else
  assert(address % sizeof(Vector) == 0);
  Vector loaded;
  std::memcpy(&loaded, reinterpret_cast<const void*>(address), sizeof loaded);
  return loaded;
#endif
}

/// Stores data that will not be read again soon to an aligned address.
SAFESHUFFLE_DEVICE_CODE void store_vector(std::uintptr_t address, const Vector& value) {
#ifdef __CUDA_ARCH__
  __stcs(reinterpret_cast<uint4*>(address),
         make_uint4(value.words[0], value.words[1], value.words[2], value.words[3]));
#else
  assert(address % sizeof(Vector) == 0);
  std::memcpy(reinterpret_cast<void*>(address), &value, sizeof value);
#endif
}

SAFESHUFFLE_DEVICE_CODE void store_byte(std::uintptr_t address, std::uint32_t value) {
  *reinterpret_cast<unsigned char*>(address) = static_cast<unsigned char>(value);
}

}  // namespace safeshuffle::device
