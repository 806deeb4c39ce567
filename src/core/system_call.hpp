// System calls, and how their failures are reported.
#pragma once

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>

namespace safeshuffle::core {

/// Repeats a system call while signals interrupt it; returns its final result.
template <typename Call>
auto uninterrupted(const Call& call) {
  for (;;) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

/// Throws the IoError of `code` (an errno) for `path`; the cause reads "<action>: <text of code>".
[[noreturn]] void raise_errno(int code, const std::string& path, const std::string& action,
                              std::optional<std::uint64_t> offset = {});

/// Throws the IoError of a file that ends before `offset`, although more bytes were expected.
[[noreturn]] void raise_ended_early(const std::string& path, std::uint64_t offset);

}  // namespace safeshuffle::core
