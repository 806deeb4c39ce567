#include "core/text.hpp"

#include <algorithm>
#include <sstream>

namespace safeshuffle::core {
namespace {

bool is_control(char c) {
  return (c >= 0 && c < ' ') || c == 0x7f;
}

bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result(text);
  std::replace_if(result.begin(), result.end(), is_control, '?');
  return result;
}

std::string shortened(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return std::string(text);
  while (limit > 0 && continues_character(text[limit])) --limit;
  return std::string(text.substr(0, limit)) + "...";
}

std::string line_and_column(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n');
  const std::string_view beside = before.substr(before.rfind('\n') + 1);
  const auto column =
      std::count_if(beside.begin(), beside.end(), [](char c) { return !continues_character(c); });
  return "line " + std::to_string(line + 1) + ", column " + std::to_string(column + 1);
}

std::string enumerate(const std::vector<std::string>& names, std::size_t total) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most_enumerated); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  total = std::max(total, names.size());
  return total <= most_enumerated
             ? text
             : text + " and " + std::to_string(total - most_enumerated) + " more";
}

std::string list_text(const std::vector<std::uint64_t>& numbers) {
  std::string text;
  for (const std::uint64_t number : numbers) {
    text += (text.empty() ? "" : ", ") + std::to_string(number);
  }
  return "[" + text + "]";
}

std::string plural(std::uint64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::string seconds_text(std::chrono::milliseconds time) {
  std::ostringstream text;
  text << std::chrono::duration<double>(time).count() << " s";
  return text.str();
}

}  // namespace safeshuffle::core
