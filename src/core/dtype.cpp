#include "safeshuffle/dtype.hpp"

#include <array>

namespace safeshuffle {
namespace {

struct Description {
  std::string_view name;
  unsigned bits;
};

// In the order of the enumeration.
constexpr std::array<Description, 22> descriptions{{
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
}};

const Description& description(DType dtype) noexcept {
  return descriptions[static_cast<std::size_t>(dtype)];
}

}  // namespace

unsigned bits(DType dtype) noexcept {
  return description(dtype).bits;
}

std::string_view name(DType dtype) noexcept {
  return description(dtype).name;
}

std::optional<DType> parse_dtype(std::string_view text) noexcept {
  for (std::size_t i = 0; i < descriptions.size(); ++i) {
    if (descriptions[i].name == text) return static_cast<DType>(i);
  }
  return std::nullopt;
}

bool is_convertible(DType dtype) noexcept {
  return dtype == DType::F16 || dtype == DType::BF16 || dtype == DType::F32;
}

DType converted(DType stored, DTypePolicy policy) noexcept {
  if (!is_convertible(stored)) return stored;
  switch (policy) {
    case DTypePolicy::keep:
      return stored;
    case DTypePolicy::f16:
      return DType::F16;
    case DTypePolicy::bf16:
      return DType::BF16;
    case DTypePolicy::f32:
      return DType::F32;
  }
  return stored;
}

}  // namespace safeshuffle
