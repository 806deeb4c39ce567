#include "format/foreign_content.hpp"

#include <algorithm>
#include <cctype>

#include "core/text.hpp"
#include "format/header.hpp"

namespace safeshuffle::format {
namespace {

constexpr std::size_t quoted_bytes = 120;

constexpr const char* download_again =
    "; download it again, with an access token if the model requires one";

/// Whether `text` begins with `word`, which is in lower case, ignoring case.
bool begins_with(std::string_view text, std::string_view word) {
  return text.size() >= word.size() &&
         std::equal(word.begin(), word.end(), text.begin(), [](char lower, char c) {
           return std::tolower(static_cast<unsigned char>(c)) == lower;
         });
}

std::string_view without_leading_space(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  return text;
}

/// {"error": …}, with any white space.
bool is_error_message(std::string_view text) {
  if (!text.starts_with('{')) return false;
  return begins_with(without_leading_space(text.substr(1)), "\"error\"");
}

/// In quotes, shortened to fit a message.
std::string first_line(std::string_view text) {
  const std::string_view line = text.substr(0, text.find_first_of("\r\n"));
  return "'" + core::shortened(line, quoted_bytes) + "'";
}

bool is_text(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](unsigned char c) { return std::isprint(c) != 0 || std::isspace(c) != 0; });
}

}  // namespace

std::string foreign_content(std::string_view beginning) {
  const std::string_view text = without_leading_space(beginning);
  if (text.starts_with("version https://git-lfs.github.com/spec/")) {
    return "this is a Git LFS pointer, not the actual file; run 'git lfs pull' in its repository";
  }
  if (begins_with(text, "<!doctype html") || begins_with(text, "<html")) {
    return std::string("this is an HTML page, saved in place of the file") + download_again;
  }
  if (is_error_message(text)) {
    return "this is a server's error message, saved in place of the file: " + first_line(text) +
           download_again;
  }
  if (beginning.starts_with("PK\x03\x04") || beginning.starts_with("\x80\x02\x8a\x0a")) {
    return "this looks like a PyTorch file; convert it to safetensors";
  }
  if (beginning.starts_with("GGUF")) return "this is a GGUF file; convert it to safetensors";
  return {};
}

std::string not_safetensors(std::string_view beginning) {
  std::string what = foreign_content(beginning);
  if (!what.empty() || beginning.empty()) return what;
  // In a header's length, all bytes except the first ones are 0.
  if (!is_text(beginning.substr(0, prefix_bytes))) return {};
  return "this is a text file, not safetensors: " + first_line(without_leading_space(beginning)) +
         download_again;
}

}  // namespace safeshuffle::format
