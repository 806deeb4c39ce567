#include "format/format_error.hpp"

#include <utility>

namespace safeshuffle::format {

void raise_format(FormatErrc code, const Place& place, std::string cause) {
  throw FormatError(ErrorRecord{.code = static_cast<std::int32_t>(code),
                                .file = place.path,
                                .tensor = place.tensor,
                                .offset = place.offset,
                                .cause = std::move(cause)});
}

}  // namespace safeshuffle::format
