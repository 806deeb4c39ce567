#include "comm/nccl_group.hpp"

#include <cstring>

#include "safeshuffle/error.hpp"

#include "comm/nccl_call.hpp"
#include "core/backoff.hpp"
#include "core/deadline.hpp"

namespace safeshuffle::comm {
namespace {

constexpr std::chrono::seconds farewell{10};

ncclConfig_t own_config() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;  // without it neither waits nor an abort can be bounded
  config.maxCTAs = most_channels;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  config.commName = "safeshuffle";
#endif
  return config;
}

ncclUniqueId decode_id(const std::string& bytes) {
  ncclUniqueId id{};
  if (bytes.size() != sizeof id) throw TransportError("a peer sent an NCCL id of the wrong size");
  std::memcpy(&id, bytes.data(), sizeof id);
  return id;
}

}  // namespace

std::string make_nccl_id() {
  ncclUniqueId id{};
  check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  return {reinterpret_cast<const char*>(&id), sizeof id};
}

std::shared_ptr<NcclGroup> NcclGroup::borrow(ncclComm_t comm, SharedGpu gpu) {
  int rank = 0;
  int size = 0;
  check_nccl(ncclCommUserRank(comm, &rank), "ncclCommUserRank", comm);
  check_nccl(ncclCommCount(comm, &size), "ncclCommCount", comm);
  auto group = std::make_shared<NcclGroup>(comm, static_cast<std::uint32_t>(rank),
                                           static_cast<std::uint32_t>(size), std::move(gpu), false);
  if (!group->ready()) throw ConfigError("the NCCL communicator is still at work");
  return group;
}

std::shared_ptr<NcclGroup> NcclGroup::create(const std::string& id_bytes, std::uint32_t rank,
                                             std::uint32_t size, SharedGpu gpu) {
  const device::GpuScope scope(*gpu);
  const ncclUniqueId id = decode_id(id_bytes);
  ncclConfig_t config = own_config();
  ncclComm_t comm = nullptr;
  check_nccl(
      ncclCommInitRankConfig(&comm, static_cast<int>(size), id, static_cast<int>(rank), &config),
      "ncclCommInitRankConfig");
  return std::make_shared<NcclGroup>(comm, rank, size, std::move(gpu), true);
}

// Nothing to wait for or to report to: whoever destroys the group may have lost its peers.
NcclGroup::~NcclGroup() {
  if (!owned_ || broken_) return;
  try {
    const device::GpuScope scope(*gpu_);
    if (finalize()) {
      ncclCommDestroy(comm_);
    } else {
      ncclCommAbort(comm_);
    }
  } catch (...) {  // the GPU cannot be reached, nor can what NCCL has there
  }
}

bool NcclGroup::finalize() const {
  try {
    if (!becomes_ready(farewell)) return false;
    check_nccl(ncclCommFinalize(comm_), "ncclCommFinalize", comm_);
    return becomes_ready(farewell);
  } catch (const Error&) {
    return false;
  }
}

bool NcclGroup::becomes_ready(std::chrono::milliseconds patience) const {
  const core::Deadline deadline(patience);
  core::Backoff backoff;
  while (!ready()) {
    if (deadline.expired()) return false;
    backoff.pause();
  }
  return true;
}

bool NcclGroup::ready() const {
  ncclResult_t state = ncclSuccess;
  check_nccl(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError", comm_);
  check_nccl(state, "the NCCL communicator", comm_);
  return state == ncclSuccess;
}

void NcclGroup::break_off() noexcept {
  if (broken_) return;
  broken_ = true;
  if (!owned_) return;
  try {
    const device::GpuScope scope(*gpu_);
    ncclCommAbort(comm_);
  } catch (...) {  // as in the destructor
  }
}

void NcclGroup::require_usable() const {
  if (broken_) throw TransportError("the NCCL transport is broken: an operation was given up");
}

std::uint64_t nccl_buffer_bytes(std::uint32_t size, int channels) noexcept {
  constexpr std::uint64_t per_peer_and_channel = std::uint64_t{12} << 20;
  return per_peer_and_channel * (size - 1) * static_cast<std::uint64_t>(channels);
}

}  // namespace safeshuffle::comm
