// The functions of NCCL.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <nccl.h>
#include <thread>
#include <utility>

#include "support/simulated_gpu/call.hpp"
#include "support/simulated_gpu/inspect.hpp"
#include "support/simulated_gpu/nccl_communicator.hpp"
#include "support/simulated_gpu/nccl_error.hpp"
#include "support/simulated_gpu/nccl_failure.hpp"
#include "support/simulated_gpu/nccl_group.hpp"
#include "support/simulated_gpu/nccl_operation.hpp"
#include "support/simulated_gpu/nccl_reduce.hpp"
#include "support/simulated_gpu/nccl_rendezvous.hpp"
#include "support/simulated_gpu/settings.hpp"
#include "support/simulated_gpu/violations.hpp"

namespace simulated_gpu {
namespace {

using SharedCommunicator = std::shared_ptr<Communicator>;

/// Any call. The body returns the result, or throws NcclFailure or CudaFailure.
template <class Body>
ncclResult_t nccl_call(const char* function, const Body& body) noexcept {
  try {
    require_callable(function);
    return body();
  } catch (const NcclFailure& failure) {
    return remember({failure.code, std::string(function) + ": " + failure.text});
  } catch (const CudaFailure& failure) {
    return remember(
        {ncclUnhandledCudaError, std::string(function) + ": " + cudaGetErrorString(failure.code)});
  }
}

SharedCommunicator require_communicator(ncclComm_t handle, const char* function) {
  auto communicator = communicators().find(handle);
  if (communicator) return communicator;
  report_violation(std::string(function) + " on a communicator that does not exist any more");
  throw NcclFailure{ncclInvalidArgument, "no such communicator"};
}

void require_ready(const Communicator& communicator, const char* function) {
  const ncclResult_t state = communicator.state();
  if (state == ncclInProgress) {
    report_violation(std::string(function) + " on a communicator that is still in progress");
    throw NcclFailure{ncclInvalidArgument, "the communicator is still in progress"};
  }
  require(state == ncclSuccess, state, "the communicator has an error");
}

/// A call that needs a communicator that is ready and not in use by another thread.
template <class Body>
ncclResult_t use_communicator(const char* function, ncclComm_t handle, const Body& body) noexcept {
  return nccl_call(function, [&] {
    const auto communicator = require_communicator(handle, function);
    const Communicator::Use use(*communicator, function);
    require_ready(*communicator, function);
    return body(communicator);
  });
}

/// Reads one of a communicator's properties.
template <class Value>
ncclResult_t read_property(const char* function, ncclComm_t handle, int* result,
                           const Value& value) noexcept {
  return use_communicator(function, handle, [&](const SharedCommunicator& communicator) {
    *result = value(*communicator);
    return ncclSuccess;
  });
}

std::atomic<std::uint64_t> unaligned{0};

Region require_device_memory(const void* pointer, std::uint64_t bytes, const Device& device,
                             const char* function) try {
  if (bytes == 0) return {};
  const auto region = find_region(pointer, bytes, function);
  if (!region || !region->on_device() || &region->allocation->device != &device) {
    report_violation(std::string(function) + ": a pointer that is not memory of GPU " +
                     std::to_string(device.ordinal()));
    throw NcclFailure{ncclInvalidArgument, "not device memory"};
  }
  if (bytes >= 16 && reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0) {
    ++unaligned;
  }
  return *region;
} catch (const CudaFailure&) {
  throw NcclFailure{ncclInvalidArgument, "not device memory"};
}

/// A caller's description of an operation.
struct Request {
  Operation::Kind kind;
  const void* source = nullptr;
  void* target = nullptr;
  std::uint64_t count = 0;
  ncclDataType_t type = ncclInt8;
  int peer = 0;
  ncclRedOp_t reduction = ncclSum;

  bool sends(int rank) const {
    if (kind == Operation::Kind::broadcast) return peer == rank;
    return kind != Operation::Kind::receive;
  }
  bool receives() const { return kind != Operation::Kind::send; }
};

void require_valid(const Request& request, const Communicator& communicator) {
  require(size_of(request.type) > 0, ncclInvalidArgument, "unknown type");
  require(request.peer >= 0 && request.peer < communicator.size(), ncclInvalidArgument,
          "no such rank");
  require(
      request.kind != Operation::Kind::all_reduce || can_reduce(request.type, request.reduction),
      ncclInvalidArgument, "the simulation has no such reduction");
  require(!communicator.finalized(), ncclInvalidUsage, "the communicator is finalized");
  require(communicator.device().error() == cudaSuccess, ncclUnhandledCudaError,
          "the GPU has failed");
}

Operation make_operation(const char* function, const Request& request,
                         const SharedCommunicator& communicator, cudaStream_t stream) {
  require_valid(request, *communicator);
  Device& device = communicator->device();
  Operation operation;
  operation.kind = request.kind;
  operation.communicator = communicator;
  operation.stream = find_stream(stream);
  operation.type = request.type;
  operation.reduction = request.reduction;
  operation.peer = request.peer;
  operation.bytes = request.count * size_of(request.type);
  const bool gathers = request.kind == Operation::Kind::all_gather;
  const auto parts = gathers ? static_cast<std::uint64_t>(communicator->size()) : 1;
  if (request.sends(communicator->rank())) {
    operation.source = require_device_memory(request.source, operation.bytes, device, function);
  }
  if (request.receives()) {
    operation.target =
        require_device_memory(request.target, operation.bytes * parts, device, function);
  }
  require(&operation.stream->device() == &device, ncclInvalidArgument,
          "the stream is another GPU's");
  return operation;
}

/// Adds an operation to the open group; any error makes the group fail.
ncclResult_t add(const char* function, const Request& request, ncclComm_t handle,
                 cudaStream_t stream) noexcept {
  const ncclResult_t result =
      use_communicator(function, handle, [&](const SharedCommunicator& communicator) {
        return Group::of_this_thread().add(make_operation(function, request, communicator, stream));
      });
  if (result != ncclSuccess && result != ncclInProgress) Group::of_this_thread().fail(result);
  return result;
}

bool is_blocking(const ncclConfig_t* config) {
  if (config == nullptr) return true;
  const ncclConfig_t valid = NCCL_CONFIG_INITIALIZER;
  require(config->magic == valid.magic, ncclInvalidArgument,
          "the configuration is not initialised");
  return config->blocking != 0;
}

/// The communicator is created in the background.
ncclResult_t join_later(const SharedCommunicator& communicator, const ncclUniqueId& id,
                        ncclComm_t* handle) {
  *handle = communicators().add(communicator);
  std::thread([communicator, id] { communicator->join(id); }).detach();
  return ncclInProgress;
}

ncclResult_t join_now(const SharedCommunicator& communicator, const ncclUniqueId& id,
                      ncclComm_t* handle) {
  communicator->join(id);
  require(communicator->state() == ncclSuccess, communicator->state(), last_nccl_error().c_str());
  *handle = communicators().add(communicator);
  return ncclSuccess;
}

/// The last step of both ways to leave a communicator.
void wait_for_peers_to_part() {
  if (!settings().stuck_parting) return;
  forbid_exit("runs exit handlers while ncclCommDestroy or ncclCommAbort is at work");
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

ncclResult_t finalize_later(const SharedCommunicator& communicator) {
  communicator->begin();
  std::thread([communicator] {
    communicator->wait_quiet();
    communicator->settle(ncclSuccess);
  }).detach();
  return ncclInProgress;
}

}  // namespace

std::uint64_t unaligned_nccl_operations() {
  return unaligned;
}

std::uint64_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

}  // namespace simulated_gpu

using namespace simulated_gpu;

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return nccl_call("ncclGetUniqueId", [&] {
    *id = make_unique_id();
    return ncclSuccess;
  });
}

ncclResult_t ncclCommInitRank(ncclComm_t* handle, int size, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(handle, size, id, rank, nullptr);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return nccl_call("ncclCommInitRankConfig", [&] {
    *handle = nullptr;
    require(rank >= 0 && rank < size, ncclInvalidArgument, "no such rank");
    Device& device = current_device();
    device.create_context();
    const bool blocking = is_blocking(config);
    const auto communicator = std::make_shared<Communicator>(device, rank, size, blocking);
    communicator->begin();
    return blocking ? join_now(communicator, id, handle) : join_later(communicator, id, handle);
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  return use_communicator("ncclCommFinalize", handle, [](const SharedCommunicator& communicator) {
    require(!communicator->finalized(), ncclInvalidUsage, "the communicator is finalized");
    communicator->finalize();
    if (!communicator->blocking()) return finalize_later(communicator);
    communicator->wait_quiet();
    return ncclSuccess;
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  return use_communicator("ncclCommDestroy", handle, [&](const SharedCommunicator& communicator) {
    communicator->wait_quiet();
    communicators().remove(handle);
    wait_for_peers_to_part();
    return ncclSuccess;
  });
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  return nccl_call("ncclCommAbort", [&] {
    const auto communicator = require_communicator(handle, "ncclCommAbort");
    communicators().remove(handle);
    communicator->abort();
    communicator->wait_settled();
    communicator->wait_quiet();
    wait_for_peers_to_part();
    return ncclSuccess;
  });
}

ncclResult_t ncclCommCount(const ncclComm_t handle, int* count) {
  return read_property("ncclCommCount", handle, count,
                       [](const Communicator& communicator) { return communicator.size(); });
}

ncclResult_t ncclCommUserRank(const ncclComm_t handle, int* rank) {
  return read_property("ncclCommUserRank", handle, rank,
                       [](const Communicator& communicator) { return communicator.rank(); });
}

ncclResult_t ncclCommCuDevice(const ncclComm_t handle, int* ordinal) {
  return read_property("ncclCommCuDevice", handle, ordinal, [](const Communicator& communicator) {
    return communicator.device().ordinal();
  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  return nccl_call("ncclCommGetAsyncError", [&] {
    *error = require_communicator(handle, "ncclCommGetAsyncError")->state();
    return ncclSuccess;
  });
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t) {
  thread_local std::string text;
  text = last_nccl_error();
  return text.c_str();
}

ncclResult_t ncclGroupStart() {
  return nccl_call("ncclGroupStart", [] {
    Group::of_this_thread().start();
    return ncclSuccess;
  });
}

ncclResult_t ncclGroupEnd() {
  return nccl_call("ncclGroupEnd", [] { return Group::of_this_thread().end(); });
}

ncclResult_t ncclSend(const void* source, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t handle, cudaStream_t stream) {
  return add(
      "ncclSend",
      {.kind = Operation::Kind::send, .source = source, .count = count, .type = type, .peer = peer},
      handle, stream);
}

ncclResult_t ncclRecv(void* target, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t handle, cudaStream_t stream) {
  return add("ncclRecv",
             {.kind = Operation::Kind::receive,
              .target = target,
              .count = count,
              .type = type,
              .peer = peer},
             handle, stream);
}

ncclResult_t ncclBroadcast(const void* source, void* target, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t handle, cudaStream_t stream) {
  return add("ncclBroadcast",
             {.kind = Operation::Kind::broadcast,
              .source = source,
              .target = target,
              .count = count,
              .type = type,
              .peer = root},
             handle, stream);
}

ncclResult_t ncclAllGather(const void* source, void* target, std::size_t count, ncclDataType_t type,
                           ncclComm_t handle, cudaStream_t stream) {
  return add("ncclAllGather",
             {.kind = Operation::Kind::all_gather,
              .source = source,
              .target = target,
              .count = count,
              .type = type},
             handle, stream);
}

ncclResult_t ncclAllReduce(const void* source, void* target, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t handle, cudaStream_t stream) {
  return add("ncclAllReduce",
             {.kind = Operation::Kind::all_reduce,
              .source = source,
              .target = target,
              .count = count,
              .type = type,
              .reduction = reduction},
             handle, stream);
}
