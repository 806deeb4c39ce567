// Conversion on the host: element after element on any CPU, and with AVX2 and F16C on x86-64 where
// the CPU has them, chosen at run time; nothing here needs more than the baseline to be compiled.
// One load and one store per dtype, F32 between them. This reaches the speed of memcpy beyond the
// caches, so that wider vectors would gain nothing. VCVTNEPS2BF16 is not used: it flushes
// subnormals to zero.
#include "device/convert.hpp"

#include <cstring>

#include "device/convert_element.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace safeshuffle::device {
namespace {

/// Also the tail of the vector code.
template <DType From, DType To>
struct ScalarConvert {
  static void run(const std::byte* source, std::byte* destination, std::size_t count) {
    typename Element<From>::Bits value{};
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(&value, source + i * sizeof value, sizeof value);
      const auto result = convert_element<From, To>(value);
      std::memcpy(destination + i * sizeof result, &result, sizeof result);
    }
  }
};

/// `Family<From, To>::run` for the pair; null unless both are among F16, BF16, F32 and different.
template <template <DType, DType> class Family>
constexpr ConvertFunction convert_function(DType from, DType to) noexcept {
  using enum DType;
  if (from == F16 && to == BF16) return Family<F16, BF16>::run;
  if (from == F16 && to == F32) return Family<F16, F32>::run;
  if (from == BF16 && to == F16) return Family<BF16, F16>::run;
  if (from == BF16 && to == F32) return Family<BF16, F32>::run;
  if (from == F32 && to == F16) return Family<F32, F16>::run;
  if (from == F32 && to == BF16) return Family<F32, BF16>::run;
  return nullptr;
}

#if defined(__x86_64__)

#define SAFESHUFFLE_AVX2 __attribute__((target("avx2,f16c")))

constexpr std::size_t lanes = 8;

/// Default floating-point state while F16C instructions run: otherwise they would set flags in the
/// caller's state, or trap if the caller has unmasked exceptions.
class DefaultFloatState {
 public:
  DefaultFloatState() noexcept : callers_(_mm_getcsr()) { _mm_setcsr(all_exceptions_masked); }
  ~DefaultFloatState() { _mm_setcsr(callers_); }
  DefaultFloatState(const DefaultFloatState&) = delete;
  DefaultFloatState& operator=(const DefaultFloatState&) = delete;

 private:
  static constexpr unsigned all_exceptions_masked = 0x1f80;
  unsigned callers_;
};

/// Eight elements of `dtype` in memory, as F32 bit patterns in a register. NaNs are made quiet on
/// the way: by `load` from F16, by `store` to F16 and BF16.
template <DType dtype>
struct Lanes;

SAFESHUFFLE_AVX2 inline __m128i load_half(const std::byte* source) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
}

SAFESHUFFLE_AVX2 inline void store_half(__m128i value, std::byte* destination) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(destination), value);
}

/// All ones in the lanes that hold a NaN.
SAFESHUFFLE_AVX2 inline __m256i is_nan(__m256i value) {
  const __m256i magnitude =
      _mm256_and_si256(value, _mm256_set1_epi32(static_cast<int>(f32::magnitude_mask)));
  return _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(static_cast<int>(f32::infinity)));
}

SAFESHUFFLE_AVX2 inline __m256i with_quiet_bit(__m256i value) {
  return _mm256_or_si256(value, _mm256_set1_epi32(static_cast<int>(f32::quiet_bit)));
}

template <>
struct Lanes<DType::F32> {
  SAFESHUFFLE_AVX2 static __m256i load(const std::byte* source) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
  }
  SAFESHUFFLE_AVX2 static void store(__m256i value, std::byte* destination) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(destination), value);
  }
};

template <>
struct Lanes<DType::F16> {
  SAFESHUFFLE_AVX2 static __m256i load(const std::byte* source) {
    return _mm256_castps_si256(_mm256_cvtph_ps(load_half(source)));
  }
  SAFESHUFFLE_AVX2 static void store(__m256i value, std::byte* destination) {
    store_half(_mm256_cvtps_ph(_mm256_castsi256_ps(value), _MM_FROUND_TO_NEAREST_INT), destination);
  }
};

template <>
struct Lanes<DType::BF16> {
  SAFESHUFFLE_AVX2 static __m256i load(const std::byte* source) {
    return _mm256_slli_epi32(_mm256_cvtepu16_epi32(load_half(source)), 16);
  }
  SAFESHUFFLE_AVX2 static void store(__m256i value, std::byte* destination) {
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(value, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(_mm256_add_epi32(value, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i result =
        _mm256_srli_epi32(_mm256_blendv_epi8(rounded, with_quiet_bit(value), is_nan(value)), 16);
    store_half(
        _mm_packus_epi32(_mm256_castsi256_si128(result), _mm256_extracti128_si256(result, 1)),
        destination);
  }
};

template <DType From, DType To>
struct VectorConvert {
  static constexpr std::size_t from_bytes = sizeof(typename Element<From>::Bits);
  static constexpr std::size_t to_bytes = sizeof(typename Element<To>::Bits);

  SAFESHUFFLE_AVX2 static void run_vectors(const std::byte* source, std::byte* destination,
                                           std::size_t count) {
    const DefaultFloatState state;
    for (std::size_t i = 0; i < count; i += lanes) {
      Lanes<To>::store(Lanes<From>::load(source + i * from_bytes), destination + i * to_bytes);
    }
  }

  static void run(const std::byte* source, std::byte* destination, std::size_t count) {
    const std::size_t whole = count - count % lanes;
    if (whole != 0) run_vectors(source, destination, whole);
    ScalarConvert<From, To>::run(source + whole * from_bytes, destination + whole * to_bytes,
                                 count - whole);
  }
};

/// Asks the CPU itself about F16C, which Clang's __builtin_cpu_supports does not know; that of AVX2
/// also says that the operating system saves the registers.
bool has_avx2_and_f16c() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) != 0 &&
         (c & bit_F16C) != 0;
}

/// Null where this CPU, or the architecture compiled for, lacks AVX2 and F16C.
ConvertFunction vector_convert(DType from, DType to) noexcept {
  static const bool supported = has_avx2_and_f16c();
  return supported ? convert_function<VectorConvert>(from, to) : nullptr;
}

#else

ConvertFunction vector_convert(DType, DType) noexcept {
  return nullptr;
}

#endif

}  // namespace

ConvertFunction select_convert(DType from, DType to) {
  const ConvertFunction vector = vector_convert(from, to);
  return vector != nullptr ? vector : scalar_convert(from, to);
}

ConvertFunction scalar_convert(DType from, DType to) {
  return convert_function<ScalarConvert>(from, to);
}

}  // namespace safeshuffle::device
