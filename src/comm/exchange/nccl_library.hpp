// NCCL, looked up at run time: programs start without it, and a process that has one already, such
// as PyTorch's, gets no second one.
#pragma once

#include <nccl.h>

namespace safeshuffle::comm {

/// The functions that are used, as nccl.h describes them.
struct NcclLibrary {
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclCommCount) comm_count = nullptr;
  decltype(&ncclCommCuDevice) comm_cu_device = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommFinalize) comm_finalize = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&ncclCommUserRank) comm_user_rank = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclRecv) recv = nullptr;
  decltype(&ncclSend) send = nullptr;
};

/// Of the program, or loaded by it; else the system's; else the one that this was built with. Never
/// unloaded. Thread-safe. Throws ConfigError that says why there is none; the next call then looks
/// again.
const NcclLibrary& nccl();

}  // namespace safeshuffle::comm
