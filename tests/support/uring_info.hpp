// What the kernel says of the rings of this process.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

namespace safeshuffle::testing {

/// The lines of fdinfo of its io_uring descriptors.
inline std::vector<std::string> uring_info() {
  std::vector<std::string> lines;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed_meanwhile;
    if (std::filesystem::read_symlink(entry, closed_meanwhile) != "anon_inode:[io_uring]") continue;
    std::ifstream info("/proc/self/fdinfo/" + entry.path().filename().string());
    for (std::string line; std::getline(info, line);) lines.push_back(line);
  }
  return lines;
}

/// How many of these lines have the text.
inline std::size_t count_uring_info(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      uring_info(), [&](const auto& line) { return line.find(text) != std::string::npos; }));
}

}  // namespace safeshuffle::testing
