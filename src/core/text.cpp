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

std::string seconds_text(std::chrono::milliseconds time) {
  std::ostringstream text;
  text << std::chrono::duration<double>(time).count() << " s";
  return text.str();
}

}  // namespace safeshuffle::core
