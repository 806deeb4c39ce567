// Errors: one exception type per source of failure, each carrying everything a user needs to act.
//
// Every function of the library reports failure by throwing one of the types below; none returns an
// error code, prints, or aborts. In a collective call all ranks throw the same error, that of the
// lowest failing rank. Only TransportError and TimeoutError may differ between ranks, see
// `is_common`. All types here are values and safe to copy between threads.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace safeshuffle {

/// Where a failure comes from. The numeric value is the exit code of the `safeshuffle` command,
/// which, when a signal has cancelled it, exits as a shell expects: with 128 + the signal.
enum class ErrorKind : std::uint8_t {
  internal = 1,      ///< an unexpected exception, such as one from the caller's callback
  config = 2,        ///< usage, options, or a rule file
  io = 3,            ///< a file cannot be opened, read or written; a checkpoint is incomplete
  format = 4,        ///< a file is not valid safetensors
  plan = 5,          ///< an axis is not divisible, a tensor is unmatched, a plan is not provable
  transport = 6,     ///< CUDA, NCCL or MPI failed
  memory = 7,        ///< the memory budget cannot hold the plan, or an allocation failed
  verification = 8,  ///< loaded bytes differ from the files
  timeout = 9,       ///< a peer was lost or made no progress
  fallback = 10,     ///< a fallback was needed with `strict`
  cancelled = 11,    ///< somebody asked for it (Options::cancel)
};

/// Whether all ranks of a collective call throw the same error if it is of this kind, so that one
/// of them can report it for all. After an error of any other kind ranks may be lost, and the
/// communicator must not be used again.
constexpr bool is_common(ErrorKind kind) noexcept {
  return kind != ErrorKind::transport && kind != ErrorKind::timeout;
}

/// Every way in which a safetensors header, file or checkpoint can be malformed;
/// `ErrorRecord::code` of a format error. One value per case, so that tests and callers can tell
/// them apart.
enum class FormatErrc : std::int32_t {
  file_too_short = 1,    ///< fewer than the 8 bytes of the header length
  header_empty,          ///< header length 0
  header_too_large,      ///< header length above the 100 MB limit
  header_past_end,       ///< header length reaches past the end of the file
  header_bad_start,      ///< first header byte is not `{`
  header_not_utf8,       ///< invalid UTF-8 in the header
  header_bad_json,       ///< not JSON, or bytes other than white space after the closing brace
  nesting_too_deep,      ///< nested deeper than any valid header
  duplicate_key,         ///< a tensor name, field or metadata key appears twice
  metadata_not_strings,  ///< `__metadata__` is not an object of strings (or null)
  entry_not_object,      ///< a tensor's value is not an object
  unknown_field,         ///< a field other than dtype, shape, data_offsets
  missing_field,         ///< dtype, shape or data_offsets is absent
  unknown_dtype,         ///< dtype is not a name of `DType`, or not a string
  bad_shape,             ///< shape is not an array of integers in [0, 2^64)
  shape_overflow,        ///< the number of bits of the tensor overflows 64 bits
  not_byte_sized,        ///< a sub-byte tensor does not fill a whole number of bytes
  bad_offsets,           ///< data_offsets is not an array of two integers in [0, 2^64)
  offsets_reversed,      ///< begin > end
  size_mismatch,         ///< end - begin differs from shape × dtype
  gap_or_overlap,        ///< the tensors leave gaps in the data or overlap
  payload_truncated,     ///< the file ends before the last tensor
  trailing_bytes,        ///< the file continues after the last tensor
  duplicate_tensor,      ///< a tensor is in two files of the checkpoint
  index_mismatch,        ///< the index and the headers disagree on a tensor
  bad_shard_record,      ///< what the files of a sharded state say of their tensors is not possible
};

/// Everything known about one failure. Fields that do not apply are empty; designated initialisers
/// may omit them.
struct ErrorRecord {
  ErrorKind kind = ErrorKind::config;
  std::int32_t code = 0;    ///< FormatErrc (format), errno (io), the native code of a library,
                            ///< or the value of Options::cancel
  std::int32_t rank = -1;   ///< first failing rank; -1 outside a collective call
  std::string file = {};    ///< path of the file at fault
  std::string tensor = {};  ///< name of the tensor at fault
  std::optional<std::uint64_t> offset = {};  ///< byte offset in `file`
  std::string cause = {};  ///< what went wrong, one sentence without the fields above
};

/// One human-readable line: rank, file, tensor, offset and cause, as far as known.
std::string describe(const ErrorRecord& record);

/// Base of all errors of the library; `what()` is `describe(record())`.
class Error : public std::runtime_error {
 public:
  explicit Error(ErrorRecord record);
  const ErrorRecord& record() const noexcept { return record_; }
  ErrorKind kind() const noexcept { return record_.kind; }

 private:
  ErrorRecord record_;
};

/// The exception type of one kind.
template <ErrorKind error_kind>
class ErrorOf final : public Error {
 public:
  explicit ErrorOf(ErrorRecord record) : Error((record.kind = error_kind, std::move(record))) {}
  explicit ErrorOf(std::string cause)
      : Error(ErrorRecord{.kind = error_kind, .cause = std::move(cause)}) {}
};

using InternalError = ErrorOf<ErrorKind::internal>;
using ConfigError = ErrorOf<ErrorKind::config>;
using IoError = ErrorOf<ErrorKind::io>;
using FormatError = ErrorOf<ErrorKind::format>;
using PlanError = ErrorOf<ErrorKind::plan>;
using TransportError = ErrorOf<ErrorKind::transport>;
using MemoryError = ErrorOf<ErrorKind::memory>;
using VerificationError = ErrorOf<ErrorKind::verification>;
using TimeoutError = ErrorOf<ErrorKind::timeout>;
using FallbackError = ErrorOf<ErrorKind::fallback>;
using CancelledError = ErrorOf<ErrorKind::cancelled>;

/// Throws the exception type of `record.kind`.
[[noreturn]] void raise(ErrorRecord record);

}  // namespace safeshuffle
