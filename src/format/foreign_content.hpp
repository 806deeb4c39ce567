// Files that are not what their names say: what was stored in their place.
#pragma once

#include <string>
#include <string_view>

namespace safeshuffle::format {

/// What a file is, and what to do about it, if its first bytes show that it is something else that
/// is often found in place of a checkpoint's files; else empty. About 500 bytes are enough.
std::string foreign_content(std::string_view beginning);

/// The same for a file that should be safetensors, as which no text can be taken.
std::string not_safetensors(std::string_view beginning);

}  // namespace safeshuffle::format
