#include "comm/exchange/nccl_group.hpp"

#include <cstring>

#include "safeshuffle/error.hpp"

#include "comm/exchange/nccl_call.hpp"
#include "comm/exchange/nccl_library.hpp"
#include "core/backoff.hpp"
#include "core/bounded_call.hpp"
#include "core/deadline.hpp"

namespace safeshuffle::comm {
namespace {

constexpr std::chrono::seconds closing_patience{5};

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
  check_nccl(nccl().get_unique_id(&id), "ncclGetUniqueId");
  return {reinterpret_cast<const char*>(&id), sizeof id};
}

std::shared_ptr<NcclGroup> NcclGroup::borrow(ncclComm_t comm, SharedGpu gpu) {
  int rank = 0;
  int size = 0;
  check_nccl(nccl().comm_user_rank(comm, &rank), "ncclCommUserRank", comm);
  check_nccl(nccl().comm_count(comm, &size), "ncclCommCount", comm);
  return std::make_shared<NcclGroup>(comm, static_cast<std::uint32_t>(rank),
                                     static_cast<std::uint32_t>(size), std::move(gpu), false);
}

std::shared_ptr<NcclGroup> NcclGroup::create(const std::string& id_bytes, std::uint32_t rank,
                                             std::uint32_t size, SharedGpu gpu) {
  const device::GpuScope scope(*gpu);
  const ncclUniqueId id = decode_id(id_bytes);
  ncclConfig_t config = own_config();
  ncclComm_t comm = nullptr;
  const ncclResult_t begun = nccl().comm_init_rank_config(&comm, static_cast<int>(size), id,
                                                          static_cast<int>(rank), &config);
  if (comm == nullptr) check_nccl(begun, "ncclCommInitRankConfig");  // else `ready` says it
  return std::make_shared<NcclGroup>(comm, rank, size, std::move(gpu), true);
}

// There is nobody to report errors to: the group may be destroyed because its peers were lost.
NcclGroup::~NcclGroup() {
  if (!owned_ || broken_) return;
  close(finalize() ? nccl().comm_destroy : nccl().comm_abort);
}

// Both block until the peers on this node, which have our buffers mapped, do the same: for ever, if
// one of them is stopped.
bool NcclGroup::close(Closing how) const noexcept {
  try {
    return core::returns_within(closing_patience, [how, comm = comm_, gpu = gpu_] {
      const device::GpuScope scope(*gpu);
      how(comm);
    });
  } catch (...) {  // no thread: the communicator is left unchanged
    return false;
  }
}

bool NcclGroup::finalize() const {
  try {
    const device::GpuScope scope(*gpu_);
    if (!becomes_ready(closing_patience)) return false;
    check_nccl(nccl().comm_finalize(comm_), "ncclCommFinalize", comm_);
    return becomes_ready(closing_patience);
  } catch (...) {  // after any error, an orderly shutdown is impossible
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
  return is_ready(comm_);
}

bool NcclGroup::break_off() noexcept {
  const bool intact = !broken_;
  broken_ = true;
  return intact && owned_ && close(nccl().comm_abort);
}

void NcclGroup::require_usable() const {
  if (broken_) {
    throw TransportError("the NCCL transport cannot be used any more: an operation was abandoned");
  }
}

std::uint64_t nccl_buffer_bytes(std::uint32_t size, int channels) noexcept {
  constexpr std::uint64_t per_peer_and_channel = std::uint64_t{12} << 20;
  return per_peer_and_channel * size * static_cast<std::uint64_t>(channels);
}

}  // namespace safeshuffle::comm
