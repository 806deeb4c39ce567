// Recognises what was stored in place of the expected file.
#pragma once

#include <string>
#include <string_view>

namespace safeshuffle::format {

/// What a file is, and what to do about it, if its first bytes show that it is something that is
/// often found in place of a checkpoint's files; else empty. About 500 bytes are enough.
std::string foreign_content(std::string_view beginning);

/// The same for a file that should be safetensors, and so cannot be text.
std::string not_safetensors(std::string_view beginning);

}  // namespace safeshuffle::format
