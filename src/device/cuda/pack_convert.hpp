// Conversion of one vector of destination elements. On the GPU its instructions round numbers to
// nearest even and keep subnormals, as convert_element does, but replace every NaN by the same one;
// vectors with a NaN are therefore left to convert_element, as is everything on the CPU.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#include "device/convert_element.hpp"
#include "device/cuda/device_code.hpp"
#include "device/cuda/pack_entry.hpp"

namespace safeshuffle::device {

/// Moves all words down by an element of 2 or 4 bytes and puts a new one at the top.
template <unsigned bytes, unsigned count>
SAFESHUFFLE_DEVICE_CODE void shift_in(std::uint32_t (&words)[count], std::uint32_t element) {
  SAFESHUFFLE_UNROLL
  for (unsigned i = 0; i < count; ++i) {
    const std::uint32_t next = i + 1 < count ? words[i + 1] : element;
    words[i] = bytes == 4 ? next : funnel_shift(words[i], next, 16);
  }
}

/// The sizes of a conversion.
template <unsigned from_size, unsigned to_size>
struct ConvertSizes {
  static constexpr unsigned from_bytes = from_size;  ///< of an element
  static constexpr unsigned to_bytes = to_size;      ///< of an element
  static constexpr unsigned elements = vector_bytes / to_bytes;
  static constexpr unsigned source_bytes = elements * from_bytes;  ///< that make one vector
  static constexpr unsigned source_words = source_bytes / 4;

  /// Source bytes that make `bytes` of the destination, a multiple of an element, maybe negative.
  template <typename Integer>
  SAFESHUFFLE_DEVICE_CODE static constexpr Integer source_of(Integer bytes) {
    if constexpr (from_bytes >= to_bytes) {
      return bytes * static_cast<Integer>(from_bytes / to_bytes);
    } else {
      return bytes / static_cast<Integer>(to_bytes / from_bytes);
    }
  }
};

/// No conversion; elements are treated as bytes.
struct CopyVector : ConvertSizes<1, 1> {
  SAFESHUFFLE_DEVICE_CODE static Vector run(const std::uint32_t (&source)[source_words]) {
    return {{source[0], source[1], source[2], source[3]}};
  }
};

template <DType From, DType To>
using ElementSizes =
    ConvertSizes<sizeof(typename Element<From>::Bits), sizeof(typename Element<To>::Bits)>;

template <DType From, DType To>
struct ConvertVector : ElementSizes<From, To> {
  using Sizes = ElementSizes<From, To>;
  using Source = std::uint32_t[Sizes::source_words];

  SAFESHUFFLE_DEVICE_CODE static Vector run(const Source& source) {
#ifdef __CUDA_ARCH__
    constexpr bool keeps_every_bit = From == DType::BF16 && To == DType::F32;
    const Numbers numbers = to_numbers(source);
    if (keeps_every_bit || !has_nan(numbers)) return round_numbers(numbers);
#endif
    return convert_elements(source);
  }

 private:
  /// Reads the lowest element and writes the highest, shifting all others: registers cannot be
  /// indexed at run time. Not unrolled, because it rarely runs.
  SAFESHUFFLE_DEVICE_CODE static Vector convert_elements(const Source& source) {
    Vector result;
    std::uint32_t rest[Sizes::source_words];
    SAFESHUFFLE_UNROLL
    for (unsigned i = 0; i < Sizes::source_words; ++i) rest[i] = source[i];
    SAFESHUFFLE_NO_UNROLL
    for (unsigned i = 0; i < Sizes::elements; ++i) {
      using FromBits = typename Element<From>::Bits;
      const auto converted = convert_element<From, To>(static_cast<FromBits>(rest[0]));
      shift_in<Sizes::to_bytes>(result.words, converted);
      shift_in<Sizes::from_bytes>(rest, 0);
    }
    return result;
  }

#ifdef __CUDACC__
  struct Numbers {
    float values[Sizes::elements];
  };

  __device__ __forceinline__ static Numbers to_numbers(const Source& source) {
    Numbers numbers;
    SAFESHUFFLE_UNROLL
    for (unsigned i = 0; i < Sizes::elements; ++i) numbers.values[i] = to_number(source, i);
    return numbers;
  }

  __device__ __forceinline__ static float to_number(const Source& source, unsigned index) {
    if constexpr (From == DType::F32) return __uint_as_float(source[index]);
    const auto bits = static_cast<std::uint16_t>(source[index / 2] >> (index % 2 * 16));
    if constexpr (From == DType::BF16) return __uint_as_float(Element<From>::to_f32(bits));
    return __half2float(__ushort_as_half(bits));
  }

  __device__ __forceinline__ static bool has_nan(const Numbers& numbers) {
    bool found = false;
    SAFESHUFFLE_UNROLL
    for (unsigned i = 0; i < Sizes::elements; ++i) found |= isnan(numbers.values[i]);
    return found;
  }

  __device__ __forceinline__ static Vector round_numbers(const Numbers& numbers) {
    Vector result;
    SAFESHUFFLE_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      if constexpr (To == DType::F32) {
        result.words[i] = __float_as_uint(numbers.values[i]);
      } else {
        result.words[i] = round_pair(numbers.values[2 * i], numbers.values[2 * i + 1]);
      }
    }
    return result;
  }

  __device__ __forceinline__ static std::uint32_t round_pair(float low, float high) {
    if constexpr (To == DType::F16) {
      const __half2 pair = __floats2half2_rn(low, high);
      return std::uint32_t{__half_as_ushort(pair.y)} << 16 | __half_as_ushort(pair.x);
    } else {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
      return std::uint32_t{__bfloat16_as_ushort(pair.y)} << 16 | __bfloat16_as_ushort(pair.x);
    }
  }
#endif
};

}  // namespace safeshuffle::device
