// Element conversion: the element functions, the portable loop and the vector code, against known
// values and against a conversion by definition.
#include "device/convert.hpp"

#include <cstring>
#include <numeric>
#include <vector>

#include "device/convert_element.hpp"
#include "support/catch.hpp"
#include "support/pseudo_random.hpp"
#include "support/reference_convert.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace safeshuffle;
using device::ConvertFunction;
using testing::ConvertPair;

namespace {

using Patterns = std::vector<std::uint32_t>;

std::size_t width(DType dtype) {
  return bits(dtype) / 8;
}

/// The patterns as consecutive little-endian elements of `dtype`.
std::vector<std::byte> to_memory(DType dtype, const Patterns& patterns) {
  std::vector<std::byte> memory(patterns.size() * width(dtype));
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    std::memcpy(memory.data() + i * width(dtype), &patterns[i], width(dtype));
  }
  return memory;
}

Patterns run(ConvertFunction function, ConvertPair pair, const Patterns& values) {
  const std::vector<std::byte> source = to_memory(pair.from, values);
  std::vector<std::byte> destination(values.size() * width(pair.to));
  function(source.data(), destination.data(), values.size());
  Patterns results(values.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    std::memcpy(&results[i], destination.data() + i * width(pair.to), width(pair.to));
  }
  return results;
}

Patterns reference(ConvertPair pair, const Patterns& values) {
  Patterns results(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    results[i] = testing::reference_convert(pair.from, pair.to, values[i]);
  }
  return results;
}

/// Compares without a check per element, which would take minutes; reports the first difference.
void check_equal(const Patterns& values, const Patterns& results, const Patterns& expected) {
  REQUIRE(results.size() == expected.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i] == expected[i]) continue;
    CAPTURE(i, values[i], results[i], expected[i]);
    FAIL("wrong conversion");
  }
  SUCCEED();
}

void check_all(ConvertPair pair, const Patterns& values) {
  CAPTURE(name(pair.from), name(pair.to));
  const Patterns expected = reference(pair, values);
  check_equal(values, run(device::scalar_convert(pair.from, pair.to), pair, values), expected);
  check_equal(values, run(device::select_convert(pair.from, pair.to), pair, values), expected);
}

Patterns all_16_bit_patterns() {
  Patterns values(1 << 16);
  std::iota(values.begin(), values.end(), 0U);
  return values;
}

/// Fractions at which some rounding, to any number of bits, changes: ties and their neighbours.
Patterns boundary_fractions() {
  constexpr std::uint32_t mask = 0x7fffff;
  Patterns fractions{0, mask};
  for (unsigned bit = 0; bit < 23; ++bit) {
    for (const std::uint32_t leading : {1U, 3U, 5U, 7U}) {
      const std::uint32_t center = leading << bit;
      for (const std::uint32_t fraction : {center - 1, center, center + 1}) {
        fractions.push_back(fraction & mask);
        fractions.push_back(~fraction & mask);
      }
    }
  }
  return fractions;
}

/// Every sign and exponent, NaN and subnormals included, with every boundary fraction.
Patterns boundary_patterns() {
  Patterns values;
  const Patterns fractions = boundary_fractions();
  for (std::uint32_t sign_and_exponent = 0; sign_and_exponent < 512; ++sign_and_exponent) {
    for (const std::uint32_t fraction : fractions) {
      values.push_back(sign_and_exponent << 23 | fraction);
    }
  }
  return values;
}

Patterns random_patterns(DType dtype, std::size_t count) {
  testing::PseudoRandom random(7);
  Patterns values(count);
  for (std::uint32_t& value : values) {
    value = static_cast<std::uint32_t>(random.next() >> (64 - bits(dtype)));
  }
  return values;
}

template <DType From, DType To>
constexpr std::uint32_t element(std::uint32_t value) {
  using Bits = typename device::Element<From>::Bits;
  return device::convert_element<From, To>(static_cast<Bits>(value));
}

}  // namespace

TEST_CASE("known values convert as published", "[convert]") {
  constexpr auto F16 = DType::F16;
  constexpr auto BF16 = DType::BF16;
  constexpr auto F32 = DType::F32;

  // F32 → F16: 1, the largest, the first that overflows, the tie below it, subnormals and ties.
  STATIC_REQUIRE(element<F32, F16>(0x3f800000) == 0x3c00);
  STATIC_REQUIRE(element<F32, F16>(0x477fe000) == 0x7bff);
  STATIC_REQUIRE(element<F32, F16>(0x477fefff) == 0x7bff);
  STATIC_REQUIRE(element<F32, F16>(0x477ff000) == 0x7c00);
  STATIC_REQUIRE(element<F32, F16>(0xff7fffff) == 0xfc00);
  STATIC_REQUIRE(element<F32, F16>(0x33800000) == 0x0001);
  STATIC_REQUIRE(element<F32, F16>(0x33000000) == 0x0000);
  STATIC_REQUIRE(element<F32, F16>(0x33000001) == 0x0001);
  STATIC_REQUIRE(element<F32, F16>(0x387fffff) == 0x0400);
  STATIC_REQUIRE(element<F32, F16>(0x80000001) == 0x8000);
  STATIC_REQUIRE(element<F32, F16>(0x3f801000) == 0x3c00);
  STATIC_REQUIRE(element<F32, F16>(0x3f803000) == 0x3c02);

  // F32 → BF16: ties both ways, overflow by rounding, subnormals.
  STATIC_REQUIRE(element<F32, BF16>(0x3f808000) == 0x3f80);
  STATIC_REQUIRE(element<F32, BF16>(0x3f818000) == 0x3f82);
  STATIC_REQUIRE(element<F32, BF16>(0x7f7fffff) == 0x7f80);
  STATIC_REQUIRE(element<F32, BF16>(0x00008001) == 0x0001);
  STATIC_REQUIRE(element<F32, BF16>(0x80008000) == 0x8000);

  // To F32, and BF16 → F16, whose range is smaller.
  STATIC_REQUIRE(element<F16, F32>(0x0001) == 0x33800000);
  STATIC_REQUIRE(element<F16, F32>(0x83ff) == 0xb87fc000);
  STATIC_REQUIRE(element<F16, F32>(0x7bff) == 0x477fe000);
  STATIC_REQUIRE(element<BF16, F32>(0x4049) == 0x40490000);
  STATIC_REQUIRE(element<BF16, F32>(0x8001) == 0x80010000);
  STATIC_REQUIRE(element<BF16, F16>(0x4780) == 0x7c00);
  STATIC_REQUIRE(element<BF16, F16>(0x3e20) == 0x3100);
  STATIC_REQUIRE(element<F16, BF16>(0x3c04) == 0x3f80);
  STATIC_REQUIRE(element<F16, BF16>(0x3c0c) == 0x3f82);

  // NaN stays NaN, also where only low payload bits say so.
  STATIC_REQUIRE(element<F32, F16>(0x7f800001) == 0x7e00);
  STATIC_REQUIRE(element<F32, F16>(0xffabe001) == 0xff5f);
  STATIC_REQUIRE(element<F32, BF16>(0x7f800001) == 0x7fc0);
  STATIC_REQUIRE(element<F32, BF16>(0xffabffff) == 0xffeb);
  STATIC_REQUIRE(element<F16, F32>(0xfc01) == 0xffc02000);
  STATIC_REQUIRE(element<BF16, F32>(0x7f81) == 0x7f810000);
  STATIC_REQUIRE(element<F16, BF16>(0x7c01) == 0x7fc0);
}

TEST_CASE("every 16-bit pattern converts as defined", "[convert]") {
  for (const ConvertPair pair : testing::convert_pairs()) {
    if (pair.from != DType::F32) check_all(pair, all_16_bit_patterns());
  }
}

TEST_CASE("F32 rounds as defined at every exponent, tie and neighbour", "[convert]") {
  check_all({DType::F32, DType::F16}, boundary_patterns());
  check_all({DType::F32, DType::BF16}, boundary_patterns());
}

TEST_CASE("F32 rounds as defined for random patterns", "[convert]") {
  const Patterns values = random_patterns(DType::F32, std::size_t{1} << 21);
  check_all({DType::F32, DType::F16}, values);
  check_all({DType::F32, DType::BF16}, values);
}

TEST_CASE("any count at any alignment writes its elements and nothing else", "[convert]") {
  constexpr std::byte canary{0xa5};
  for (const ConvertPair pair : testing::convert_pairs()) {
    for (std::size_t count = 0; count <= 67; ++count) {
      const Patterns values = random_patterns(pair.from, count);
      const std::vector<std::byte> elements = to_memory(pair.from, values);
      const std::vector<std::byte> results = to_memory(pair.to, reference(pair, values));
      for (std::size_t misalignment = 0; misalignment < 16; ++misalignment) {
        std::vector<std::byte> source((misalignment * 7 + count) % 16, canary);
        const std::size_t start = source.size();
        source.insert(source.end(), elements.begin(), elements.end());
        std::vector<std::byte> expected(misalignment, canary);
        expected.insert(expected.end(), results.begin(), results.end());
        expected.resize(expected.size() + 32, canary);
        std::vector<std::byte> destination(expected.size(), canary);
        device::select_convert(pair.from, pair.to)(source.data() + start,
                                                   destination.data() + misalignment, count);
        CAPTURE(name(pair.from), name(pair.to), count, misalignment);
        REQUIRE(destination == expected);
      }
    }
  }
}

#if defined(__x86_64__)
TEST_CASE("the caller's floating-point state changes no result and is left alone", "[convert]") {
  constexpr unsigned flush_and_denormals_are_zero = 0x8040;
  const unsigned masks = GENERATE(0x1f80U, 0U);  // 0: every exception traps
  const unsigned rounding = GENERATE(0U, 1U, 2U, 3U) << 13;
  const unsigned state = flush_and_denormals_are_zero | masks | rounding;
  for (const ConvertPair pair : testing::convert_pairs()) {
    const Patterns values = pair.from == DType::F32 ? boundary_patterns() : all_16_bit_patterns();
    const Patterns expected = reference(pair, values);
    for (const auto select : {device::scalar_convert, device::select_convert}) {
      const ConvertFunction function = select(pair.from, pair.to);
      const unsigned before = _mm_getcsr();
      _mm_setcsr(state);
      const Patterns results = run(function, pair, values);
      const unsigned after = _mm_getcsr();
      _mm_setcsr(before);
      CAPTURE(name(pair.from), name(pair.to), state);
      CHECK(after == state);
      check_equal(values, results, expected);
    }
  }
}
#endif
