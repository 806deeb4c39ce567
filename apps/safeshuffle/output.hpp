// What the command prints.
#pragma once

#include <string_view>

#include "safeshuffle/error.hpp"

namespace safeshuffle::app {

/// Makes the standard streams fit to be written to, whatever the caller has made of them: one that
/// is closed refuses what is written instead of taking it into the file that is opened next, and a
/// pipe that nobody reads is an error instead of the end of the process. To be called first.
void prepare_streams();

/// Writes to standard output, at once and whole. Throws IoError.
void print_result(std::string_view text);

/// Writes to standard error. Where that fails there is nobody left to tell.
void print_message(std::string_view text) noexcept;

/// Writes "safeshuffle: error: …" to standard error: the one message of a job that failed.
void print_error(const ErrorRecord& error);

}  // namespace safeshuffle::app
