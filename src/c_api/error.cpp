#include "c_api/error.hpp"

#include <cstdint>
#include <limits>
#include <string>

#ifndef SAFESHUFFLE_VERSION
#error "the build says the version"
#endif

namespace safeshuffle::c_api {
namespace {

constexpr std::uint64_t unknown_offset = std::numeric_limits<std::uint64_t>::max();

struct OwnedError : safeshuffle_error {
  explicit OwnedError(const ErrorRecord& given)
      : safeshuffle_error{}, record(given), text(describe(given)) {
    kind = static_cast<std::uint32_t>(record.kind);
    code = record.code;
    rank = record.rank;
    file = record.file.c_str();
    tensor = record.tensor.c_str();
    offset = record.offset.value_or(unknown_offset);
    cause = record.cause.c_str();
    message = text.c_str();
  }

  ErrorRecord record;
  std::string text;
};

// For when there is no memory for an error.
safeshuffle_error out_of_memory{static_cast<std::uint32_t>(ErrorKind::memory),
                                0,
                                -1,
                                "",
                                "",
                                unknown_offset,
                                "an allocation failed",
                                "an allocation failed"};

}  // namespace

safeshuffle_error* make_error(const ErrorRecord& record) noexcept {
  try {
    return new OwnedError(record);
  } catch (const std::bad_alloc&) {
    return &out_of_memory;
  }
}

}  // namespace safeshuffle::c_api

using namespace safeshuffle::c_api;

void safeshuffle_error_free(safeshuffle_error* error) {
  if (error != &out_of_memory) delete static_cast<OwnedError*>(error);
}

uint32_t safeshuffle_abi_version() {
  return SAFESHUFFLE_ABI_VERSION;
}

const char* safeshuffle_version() {
  return SAFESHUFFLE_VERSION;
}
