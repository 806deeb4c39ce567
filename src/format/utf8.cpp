#include "format/utf8.hpp"

#include <array>
#include <cstdint>
#include <cstring>

namespace safeshuffle::format {
namespace {

/// The leading bytes of a kind of sequence, the range of its second byte, and its length. All
/// further bytes lie in [80, BF].
struct Form {
  std::uint8_t first_lead, last_lead;
  std::uint8_t first_second, last_second;
  std::size_t length;
};

constexpr std::array<Form, 8> forms{{
    {0xC2, 0xDF, 0x80, 0xBF, 2},
    {0xE0, 0xE0, 0xA0, 0xBF, 3},
    {0xE1, 0xEC, 0x80, 0xBF, 3},
    {0xED, 0xED, 0x80, 0x9F, 3},
    {0xEE, 0xEF, 0x80, 0xBF, 3},
    {0xF0, 0xF0, 0x90, 0xBF, 4},
    {0xF1, 0xF3, 0x80, 0xBF, 4},
    {0xF4, 0xF4, 0x80, 0x8F, 4},
}};

constexpr bool within(char byte, std::uint8_t first, std::uint8_t last) noexcept {
  const auto value = static_cast<std::uint8_t>(byte);
  return first <= value && value <= last;
}

/// Length of the sequence of two bytes or more that `text` begins with; 0 if there is none.
std::size_t sequence_length(std::string_view text) noexcept {
  for (const Form& form : forms) {
    if (!within(text[0], form.first_lead, form.last_lead)) continue;
    if (text.size() < form.length) return 0;
    if (!within(text[1], form.first_second, form.last_second)) return 0;
    for (std::size_t i = 2; i < form.length; ++i) {
      if (!within(text[i], 0x80, 0xBF)) return 0;
    }
    return form.length;
  }
  return 0;
}

/// Length of the ASCII run at the start of `text`, eight bytes at a time and then one by one.
std::size_t ascii_length(std::string_view text) noexcept {
  constexpr std::uint64_t high_bits = 0x8080808080808080;
  std::size_t length = 0;
  for (std::uint64_t word = 0; length + sizeof word <= text.size(); length += sizeof word) {
    std::memcpy(&word, text.data() + length, sizeof word);
    if ((word & high_bits) != 0) break;
  }
  while (length < text.size() && within(text[length], 0x00, 0x7F)) ++length;
  return length;
}

}  // namespace

std::optional<std::size_t> find_invalid_utf8(std::string_view text) noexcept {
  std::size_t at = ascii_length(text);
  while (at < text.size()) {
    const std::size_t length = sequence_length(text.substr(at));
    if (length == 0) return at;
    at += length;
    at += ascii_length(text.substr(at));
  }
  return std::nullopt;
}

}  // namespace safeshuffle::format
