// NCCL return codes as exceptions.
#pragma once

#include <nccl.h>

#include "core/source_line.hpp"

namespace safeshuffle::comm {

/// Throws unless `code` is ncclSuccess, or ncclInProgress, which is how calls on a non-blocking
/// communicator say that they go on: TimeoutError if a peer was lost, else TransportError, with
/// NCCL's own words. `operation` names the call; `comm` may be null.
void check_nccl(ncclResult_t code, const char* operation, ncclComm_t comm = nullptr,
                core::SourceLine where = core::SourceLine::here());

/// Whether what was last called on the communicator is over, its set-up included; until then
/// nothing else may be called on it. Throws what went wrong, also if that is a peer's failure.
bool is_ready(ncclComm_t comm);

}  // namespace safeshuffle::comm
