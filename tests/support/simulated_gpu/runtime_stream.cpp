// Stream and event functions of the CUDA runtime.
#include <chrono>
#include <cuda_runtime_api.h>
#include <memory>
#include <utility>

#include "support/simulated_gpu/call.hpp"
#include "support/simulated_gpu/device.hpp"
#include "support/simulated_gpu/stream.hpp"

namespace simulated_gpu {
namespace {

std::shared_ptr<Event> find_event(cudaEvent_t handle) {
  auto event = events().find(handle);
  require(event != nullptr, cudaErrorInvalidResourceHandle);
  return event;
}

void require_working(const Device& device) {
  require(device.error() == cudaSuccess, device.error());
}

void record(Event& event, Stream& stream) {
  require(&event.device == &stream.device(), cudaErrorInvalidResourceHandle);
  auto marker = std::make_shared<Marker>();
  {
    const std::scoped_lock lock(event.mutex);
    event.marker = marker;
  }
  stream.enqueue([marker] { marker->reach(); });
}

Marker::Clock::time_point time_of(Event& event) {
  const auto marker = event.last_record();
  const bool timed = (event.flags & cudaEventDisableTiming) == 0;
  require(timed && marker != nullptr, cudaErrorInvalidResourceHandle);
  require(marker->reached(), cudaErrorNotReady);
  return marker->time();
}

void call_back(cudaHostFn_t function, void* argument) {
  inside_callback() = true;
  function(argument);
  inside_callback() = false;
}

}  // namespace
}  // namespace simulated_gpu

using namespace simulated_gpu;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
  return device_call("cudaStreamCreateWithFlags", [&](Device& device) {
    const auto stream = Stream::start(device, flags);
    device.add_stream(stream);
    *handle = streams().add(stream);
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return device_call("cudaStreamDestroy", [&](Device&) {
    const auto stream = streams().remove(handle);
    require(stream != nullptr, cudaErrorInvalidResourceHandle);
    stream->close();
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return device_call("cudaStreamQuery", [&](Device&) {
    const auto stream = find_stream(handle);
    require(stream->idle(), cudaErrorNotReady);
    require_working(stream->device());
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return device_call("cudaStreamSynchronize", [&](Device&) {
    const auto stream = find_stream(handle);
    stream->wait();
    require_working(stream->device());
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  return device_call("cudaStreamWaitEvent", [&](Device&) {
    const auto stream = find_stream(handle);
    const auto marker = find_event(event)->last_record();
    if (marker) stream->enqueue([marker] { marker->wait(); });
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return device_call("cudaStreamIsCapturing", [&](Device&) {
    const bool legacy = handle == nullptr || handle == cudaStreamLegacy;
    require(!legacy || captures_of_blocking_streams() == 0, cudaErrorStreamCaptureImplicit);
    const bool active = find_stream(handle)->capturing();
    *status = active ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return device_call("cudaStreamBeginCapture", [&](Device&) {
    require(mode == cudaStreamCaptureModeGlobal, cudaErrorNotSupported);
    const auto stream = find_stream(handle);
    require(!stream->capturing().exchange(true), cudaErrorIllegalState);
    ++captures_of_this_thread();
    if (stream->blocking()) ++captures_of_blocking_streams();
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return device_call("cudaStreamEndCapture", [&](Device&) {
    const auto stream = find_stream(handle);
    require(stream->capturing().exchange(false), cudaErrorIllegalState);
    --captures_of_this_thread();
    if (stream->blocking()) --captures_of_blocking_streams();
    *graph = nullptr;
  });
}

// There are none to destroy.
cudaError_t cudaGraphDestroy(cudaGraph_t) {
  return runtime_call("cudaGraphDestroy", [] { require(false, cudaErrorInvalidValue); });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* argument) {
  return device_call("cudaLaunchHostFunc", [&](Device&) {
    find_stream(handle)->enqueue([function, argument] { call_back(function, argument); });
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
  return device_call("cudaEventCreateWithFlags", [&](Device& device) {
    *handle = events().add(std::make_shared<Event>(device, flags));
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return device_call("cudaEventDestroy", [&](Device&) {
    require(events().remove(handle) != nullptr, cudaErrorInvalidResourceHandle);
  });
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  return device_call("cudaEventRecord",
                     [&](Device&) { record(*find_event(handle), *find_stream(stream)); });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return device_call("cudaEventQuery", [&](Device&) {
    const auto event = find_event(handle);
    const auto marker = event->last_record();
    require(!marker || marker->reached(), cudaErrorNotReady);
    require_working(event->device);
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return device_call("cudaEventSynchronize", [&](Device&) {
    const auto event = find_event(handle);
    if (const auto marker = event->last_record()) marker->wait();
    require_working(event->device);
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return device_call("cudaEventElapsedTime", [&](Device&) {
    const auto elapsed = time_of(*find_event(end)) - time_of(*find_event(start));
    *milliseconds = std::chrono::duration<float, std::milli>(elapsed).count();
  });
}
