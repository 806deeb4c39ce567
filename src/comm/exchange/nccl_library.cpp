#include "comm/exchange/nccl_library.hpp"

#include <dlfcn.h>
#include <string>

#include "safeshuffle/error.hpp"

namespace safeshuffle::comm {
namespace {

constexpr int least_version = NCCL_VERSION(2, 19, 0);

// As dlsym takes it.
void* open_library() {
  if (::dlsym(RTLD_DEFAULT, "ncclGetVersion") != nullptr) return RTLD_DEFAULT;
  std::string reason;
  for (const char* const name : {"libnccl.so.2", SAFESHUFFLE_NCCL_LIBRARY}) {
    if (void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
    if (reason.empty()) reason = ::dlerror();
  }
  throw ConfigError("cannot load NCCL: " + reason);
}

template <class Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  if (function == nullptr) throw ConfigError("NCCL has no function " + std::string(name));
}

// 2.28.9 is 22809.
std::string version_text(int version) {
  return std::to_string(version / 10'000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

void check_version(const NcclLibrary& nccl) {
  int version = 0;
  if (nccl.get_version(&version) == ncclSuccess && version >= least_version) return;
  throw ConfigError("NCCL " + version_text(version) + " is too old: at least " +
                    version_text(least_version) + " is needed");
}

NcclLibrary load() {
  void* const library = open_library();
  NcclLibrary nccl;
  find(library, "ncclGetVersion", nccl.get_version);
  check_version(nccl);
  find(library, "ncclAllGather", nccl.all_gather);
  find(library, "ncclBroadcast", nccl.broadcast);
  find(library, "ncclCommAbort", nccl.comm_abort);
  find(library, "ncclCommCount", nccl.comm_count);
  find(library, "ncclCommCuDevice", nccl.comm_cu_device);
  find(library, "ncclCommDestroy", nccl.comm_destroy);
  find(library, "ncclCommFinalize", nccl.comm_finalize);
  find(library, "ncclCommGetAsyncError", nccl.comm_get_async_error);
  find(library, "ncclCommInitRankConfig", nccl.comm_init_rank_config);
  find(library, "ncclCommUserRank", nccl.comm_user_rank);
  find(library, "ncclGetErrorString", nccl.get_error_string);
  find(library, "ncclGetLastError", nccl.get_last_error);
  find(library, "ncclGetUniqueId", nccl.get_unique_id);
  find(library, "ncclGroupEnd", nccl.group_end);
  find(library, "ncclGroupStart", nccl.group_start);
  find(library, "ncclRecv", nccl.recv);
  find(library, "ncclSend", nccl.send);
  return nccl;
}

}  // namespace

const NcclLibrary& nccl() {
  static const NcclLibrary library = load();
  return library;
}

}  // namespace safeshuffle::comm
