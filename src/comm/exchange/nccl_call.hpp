// NCCL return codes as exceptions.
#pragma once

#include <nccl.h>

#include "core/source_line.hpp"

namespace safeshuffle::comm {

/// Throws unless `code` is ncclSuccess, or ncclInProgress, which calls on a non-blocking
/// communicator return while they continue: TimeoutError if a peer was lost, else TransportError,
/// with NCCL's message. `operation` names the call; `comm` may be null.
void check_nccl(ncclResult_t code, const char* operation, ncclComm_t comm = nullptr,
                core::SourceLine where = core::SourceLine::here());

/// Whether the last call on the communicator, including its set-up, has completed; until then,
/// nothing else may be called on it. Throws if it failed, also if a peer did.
bool is_ready(ncclComm_t comm);

}  // namespace safeshuffle::comm
