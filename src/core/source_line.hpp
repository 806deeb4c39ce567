// The source line of a call. std::source_location needs clang 16, this clang 14.
#pragma once

#include <string>
#include <string_view>

namespace safeshuffle::core {

struct SourceLine {
  const char* path = "";
  int line = 0;

  /// As a default argument: the line of the call.
  static constexpr SourceLine here(const char* path = __builtin_FILE(),
                                   int line = __builtin_LINE()) noexcept {
    return {path, line};
  }
};

/// "file.cpp:12": without directories, which depend on where the project was built.
inline std::string text_of(const SourceLine& where) {
  const std::string_view path = where.path;
  return std::string(path.substr(path.find_last_of('/') + 1)) + ":" + std::to_string(where.line);
}

}  // namespace safeshuffle::core
