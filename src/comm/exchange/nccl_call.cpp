#include "comm/exchange/nccl_call.hpp"

#include <string>

#include "safeshuffle/error.hpp"

#include "comm/exchange/nccl_library.hpp"

namespace safeshuffle::comm {
namespace {

// NCCL's last error gives the reason, such as which interface failed; often it is empty.
std::string words(ncclResult_t code, ncclComm_t comm) {
  const char* const last = nccl().get_last_error(comm);
  std::string text = nccl().get_error_string(code);
  if (last != nullptr && *last != '\0') text += std::string(", ") + last;
  return text;
}

}  // namespace

void check_nccl(ncclResult_t code, const char* operation, ncclComm_t comm, core::SourceLine where) {
  if (code == ncclSuccess || code == ncclInProgress) return;
  ErrorRecord record{.code = static_cast<std::int32_t>(code)};
  record.cause =
      std::string(operation) + ": " + words(code, comm) + " (" + core::text_of(where) + ")";
  if (code == ncclRemoteError) throw TimeoutError(std::move(record));
  throw TransportError(std::move(record));
}

bool is_ready(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  check_nccl(nccl().comm_get_async_error(comm, &state), "ncclCommGetAsyncError", comm);
  check_nccl(state, "the NCCL communicator", comm);
  return state == ncclSuccess;
}

}  // namespace safeshuffle::comm
