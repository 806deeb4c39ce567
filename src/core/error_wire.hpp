// Errors on their way from one rank to the others.
#pragma once

#include <string>
#include <string_view>

#include "safeshuffle/error.hpp"

namespace safeshuffle::core {

/// Bytes of a record, and back; for sending between ranks of the same build. What is no record
/// makes `decode_error` throw TransportError.
std::string encode(const ErrorRecord& record);
ErrorRecord decode_error(std::string_view bytes);

/// The record of the exception being handled (call inside a catch block): that of an Error, or one
/// made from bad_alloc (memory), a failure of the system (io), or anything else (internal).
ErrorRecord current_error();

}  // namespace safeshuffle::core
