// Encodes errors for sending them to other ranks.
#pragma once

#include <string>
#include <string_view>
#include <tuple>

#include "safeshuffle/error.hpp"

#include "core/wire.hpp"

namespace safeshuffle {

auto fields(core::As<ErrorRecord> auto& record) {
  return std::tie(record.kind, record.code, record.rank, record.offset, record.file, record.tensor,
                  record.cause);
}

namespace core {

/// Encodes and decodes a record, for sending between ranks of the same build. `decode_error` throws
/// TransportError if the bytes are not a record.
std::string encode(const ErrorRecord& record);
ErrorRecord decode_error(std::string_view bytes);

/// The record of the exception being handled (call inside a catch block): that of an Error, or one
/// made from bad_alloc (memory), a failure of the system (io), or anything else (internal).
ErrorRecord current_error();

}  // namespace core
}  // namespace safeshuffle
