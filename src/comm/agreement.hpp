// Agreement on errors: all ranks throw the same one or none.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "safeshuffle/error.hpp"

#include "comm/transport.hpp"
#include "core/deadline.hpp"

namespace safeshuffle::comm {

/// Bytes of a record, and back; for sending between ranks of the same build.
std::string encode(const ErrorRecord& record);
ErrorRecord decode_error(std::string_view bytes);

/// The record of the exception being handled (call inside a catch block): that of an Error, or one
/// made from bad_alloc (memory), a failure of the system (io), or anything else (internal).
ErrorRecord current_error();

/// Collective. Returns every rank's `mine` if no rank passes an error; else throws, on all ranks,
/// the error of the lowest rank that has one, with `rank` filled in.
std::vector<std::string> agree(Transport& transport, std::string_view mine,
                               const std::optional<ErrorRecord>& error, core::Deadline deadline);

/// Runs `step` and agrees on its outcome: what it throws, all ranks throw. Collective.
std::vector<std::string> agree_on(Transport& transport, core::Deadline deadline,
                                  const std::function<std::string()>& step);

}  // namespace safeshuffle::comm
