// What the command prints.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "safeshuffle/error.hpp"

namespace safeshuffle::app {

/// Makes the standard streams safe to write to, in whatever state the caller left them: writing to
/// a closed one fails, instead of going to the file that is opened next, and writing to a pipe
/// without a reader, or more to a file than the limit of the process, is an error instead of a
/// signal. Call first.
void prepare_streams();

/// Writes the whole text to standard output at once. Throws IoError.
void print_result(std::string_view text);

/// Writes to standard error. Failures are ignored, because they cannot be reported.
void print_message(std::string_view text) noexcept;

/// Writes each to standard error as "safeshuffle: warning: …". Call on rank 0 only.
void print_warnings(const std::vector<std::string>& warnings);

/// Writes "safeshuffle: error: …" to standard error: the one message of a job that failed.
void print_error(const ErrorRecord& error);

}  // namespace safeshuffle::app
