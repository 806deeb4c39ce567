// NCCL return codes as exceptions.
#pragma once

#include <nccl.h>
#include <source_location>

namespace safeshuffle::comm {

/// Throws unless `code` is ncclSuccess, or ncclInProgress, which is how calls on a non-blocking
/// communicator say that they go on: TimeoutError if a peer was lost, else TransportError, with
/// NCCL's own words. `operation` names the call; `comm` may be null.
void check_nccl(ncclResult_t code, const char* operation, ncclComm_t comm = nullptr,
                const std::source_location& where = std::source_location::current());

}  // namespace safeshuffle::comm
