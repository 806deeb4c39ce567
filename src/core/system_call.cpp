#include "core/system_call.hpp"

#include <system_error>

#include "safeshuffle/error.hpp"

namespace safeshuffle::core {

void raise_errno(int code, const std::string& path, const std::string& action,
                 std::optional<std::uint64_t> offset) {
  throw IoError(ErrorRecord{.code = code,
                            .file = path,
                            .offset = offset,
                            .cause = action + ": " + std::generic_category().message(code)});
}

void raise_ended_early(const std::string& path, std::uint64_t offset) {
  throw IoError(ErrorRecord{.file = path, .offset = offset, .cause = "file ended early"});
}

}  // namespace safeshuffle::core
