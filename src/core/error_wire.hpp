// Encodes errors for sending them to other ranks.
#pragma once

#include <string>
#include <string_view>

#include "safeshuffle/error.hpp"

namespace safeshuffle::core {

/// Encodes and decodes a record, for sending between ranks of the same build. `decode_error` throws
/// TransportError if the bytes are not a record.
std::string encode(const ErrorRecord& record);
ErrorRecord decode_error(std::string_view bytes);

/// The record of the exception being handled (call inside a catch block): that of an Error, or one
/// made from bad_alloc (memory), a failure of the system (io), or anything else (internal).
ErrorRecord current_error();

}  // namespace safeshuffle::core
