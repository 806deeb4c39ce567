// Calls to the system, and how their failures are told.
#pragma once

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>

namespace safeshuffle::core {

/// Repeats a system call while signals interrupt it; what it returned in the end.
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

/// Throws the IoError of a file that has no byte at `offset`, though one was expected there.
[[noreturn]] void raise_ended_early(const std::string& path, std::uint64_t offset);

}  // namespace safeshuffle::core
