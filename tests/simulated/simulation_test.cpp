// The simulated CUDA runtime. Each test case is a process of its own, because a process is one
// machine, and because what it breaks is told when it exits.
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "simulated/device_memory.hpp"
#include "simulated/processes.hpp"
#include "simulated/sample_kernel.hpp"
#include "support/catch.hpp"
#include "support/simulated_gpu/inspect.hpp"
#include "support/simulated_gpu/kernels.hpp"
#include "support/simulated_gpu/memory.hpp"

namespace {

using namespace safeshuffle::testing;
using Bytes = std::vector<std::byte>;

std::byte* pinned_memory(std::size_t bytes) {
  void* memory = nullptr;
  EXPECT(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault) == cudaSuccess);
  return static_cast<std::byte*>(memory);
}

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  EXPECT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  return stream;
}

cudaEvent_t new_event(unsigned flags = cudaEventDisableTiming) {
  cudaEvent_t event = nullptr;
  EXPECT(cudaEventCreateWithFlags(&event, flags) == cudaSuccess);
  return event;
}

Bytes read_back(const std::byte* memory, std::size_t bytes) {
  Bytes result(bytes);
  EXPECT(cudaMemcpy(result.data(), memory, bytes, cudaMemcpyDeviceToHost) == cudaSuccess);
  return result;
}

/// Holds a stream up until it is opened.
class Gate {
 public:
  void close(cudaStream_t stream) { EXPECT(cudaLaunchHostFunc(stream, wait, this) == cudaSuccess); }
  void open() { open_ = true; }

 private:
  static void wait(void* gate) {
    while (!static_cast<Gate*>(gate)->open_)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::atomic<bool> open_{false};
};

void add_on_host(void** arguments, dim3 grid, dim3 block) {
  std::byte* const data = simulated_gpu::host_view(*static_cast<std::byte**>(arguments[0]));
  const auto bytes = *static_cast<std::uint64_t*>(arguments[1]);
  const auto value = *static_cast<std::uint8_t*>(arguments[2]);
  EXPECT(std::uint64_t{grid.x} * block.x >= bytes);
  for (std::uint64_t i = 0; i < bytes; ++i) {
    data[i] = static_cast<std::byte>(static_cast<std::uint8_t>(data[i]) + value);
  }
}

void register_add() {
  simulated_gpu::register_kernel("add_to_bytes", {8, 8, 1}, add_on_host);
}

std::size_t threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

template <class Function>
Function driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult status{};
  EXPECT(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &status) ==
         cudaSuccess);
  EXPECT(status == cudaDriverEntryPointSuccess);
  return reinterpret_cast<Function>(function);
}

TEST_CASE("Simulated copies move bytes to the GPU and back", "[simulated]") {
  CHECK(status_of([] {
          std::byte* const memory = device_memory(1000);
          const Bytes sent(1000, std::byte{7});
          EXPECT(read_back(memory, 1000) != Bytes(1000));  // fresh memory is not zero
          EXPECT(cudaMemcpy(memory, sent.data(), 1000, cudaMemcpyHostToDevice) == cudaSuccess);
          EXPECT(read_back(memory, 1000) == sent);
          EXPECT(cudaMemsetAsync(memory + 1, 9, 998, nullptr) == cudaSuccess);
          EXPECT(read_back(memory, 3) == Bytes({std::byte{7}, std::byte{9}, std::byte{9}}));
          EXPECT(cudaFree(memory) == cudaSuccess);
        }) == 0);
}

TEST_CASE("Host code that follows a device pointer crashes", "[simulated]") {
  CHECK(status_of([] { *const_cast<volatile std::byte*>(device_memory(16)) = std::byte{1}; }) ==
        -SIGSEGV);
}

TEST_CASE("Simulated memory is limited and counted", "[simulated]") {
  CHECK(status_of({{"SIMULATED_GPU_MEMORY", "1000000"}}, [] {
          std::byte* const memory = device_memory(900000);
          void* more = nullptr;
          EXPECT(cudaMalloc(&more, 100001) == cudaErrorMemoryAllocation);
          EXPECT(cudaGetLastError() == cudaErrorMemoryAllocation);
          EXPECT(cudaGetLastError() == cudaSuccess);
          std::size_t free = 0;
          std::size_t total = 0;
          EXPECT(cudaMemGetInfo(&free, &total) == cudaSuccess);
          EXPECT(free == 100000 && total == 1000000);
          EXPECT(simulated_gpu::device_bytes(0) == 900000);
          std::byte* const pinned = pinned_memory(5000);
          EXPECT(simulated_gpu::pinned_bytes() == 5000);
          EXPECT(cudaFreeHost(pinned) == cudaSuccess);
          EXPECT(cudaFree(memory) == cudaSuccess);
          EXPECT(simulated_gpu::device_bytes(0) == 0 && simulated_gpu::pinned_bytes() == 0);
        }) == 0);
}

TEST_CASE("Small allocations have the alignment of the driver's and no more", "[simulated]") {
  CHECK(status_of([] {
          EXPECT(reinterpret_cast<std::uintptr_t>(device_memory(4096)) % 1024 == 512);
          EXPECT(reinterpret_cast<std::uintptr_t>(device_memory(1 << 20)) % (1 << 21) == 0);
        }) == 0);
}

TEST_CASE("Copies past the end of memory break a rule", "[simulated]") {
  CHECK(status_of([] {
          std::byte* const memory = device_memory(100);
          Bytes host(101);
          EXPECT(cudaMemcpyAsync(host.data(), memory, 101, cudaMemcpyDeviceToHost, nullptr) ==
                 cudaErrorInvalidValue);
          EXPECT(simulated_gpu::violations().size() == 1);
        }) == broke_a_rule);
}

TEST_CASE("Using freed memory breaks a rule", "[simulated]") {
  CHECK(status_of([] {
          std::byte* const memory = device_memory(100);
          EXPECT(cudaFree(memory) == cudaSuccess);
          EXPECT(cudaMemsetAsync(memory, 0, 1, nullptr) == cudaErrorInvalidValue);
        }) == broke_a_rule);
  CHECK(status_of([] {
          std::byte* const memory = device_memory(100);
          EXPECT(cudaFree(memory) == cudaSuccess);
          EXPECT(cudaFree(memory) == cudaErrorInvalidValue);
        }) == broke_a_rule);
}

TEST_CASE("Copies in the wrong direction are refused", "[simulated]") {
  CHECK(status_of([] {
          std::byte* const memory = device_memory(8);
          Bytes host(8);
          EXPECT(cudaMemcpy(memory, host.data(), 8, cudaMemcpyDeviceToHost) ==
                 cudaErrorInvalidValue);
        }) == 0);
}

TEST_CASE("Pageable memory is staged, pinned memory is read late", "[simulated]") {
  CHECK(status_of([] {
          std::byte* const memory = device_memory(2);
          std::byte* const pinned = pinned_memory(1);
          Bytes pageable(1, std::byte{1});
          pinned[0] = std::byte{1};
          Gate gate;
          const cudaStream_t stream = new_stream();
          gate.close(stream);
          EXPECT(cudaMemcpyAsync(memory, pageable.data(), 1, cudaMemcpyHostToDevice, stream) ==
                 cudaSuccess);
          EXPECT(cudaMemcpyAsync(memory + 1, pinned, 1, cudaMemcpyHostToDevice, stream) ==
                 cudaSuccess);
          pageable[0] = pinned[0] = std::byte{2};
          gate.open();
          EXPECT(cudaStreamSynchronize(stream) == cudaSuccess);
          EXPECT(read_back(memory, 2) == Bytes({std::byte{1}, std::byte{2}}));
        }) == 0);
}

TEST_CASE("Streams run by themselves, events order them", "[simulated]") {
  CHECK(status_of([] {
          std::byte* const memory = device_memory(1);
          const cudaStream_t first = new_stream();
          const cudaStream_t second = new_stream();
          const cudaEvent_t filled = new_event();
          Gate gate;
          gate.close(first);
          EXPECT(cudaMemsetAsync(memory, 1, 1, first) == cudaSuccess);
          EXPECT(cudaEventQuery(filled) == cudaSuccess);  // never recorded
          EXPECT(cudaEventRecord(filled, first) == cudaSuccess);
          EXPECT(cudaStreamWaitEvent(second, filled, 0) == cudaSuccess);
          EXPECT(cudaMemsetAsync(memory, 2, 1, second) == cudaSuccess);
          std::this_thread::sleep_for(std::chrono::milliseconds(20));  // time to get it wrong
          EXPECT(cudaStreamQuery(second) == cudaErrorNotReady);
          EXPECT(cudaEventQuery(filled) == cudaErrorNotReady);
          EXPECT(cudaGetLastError() == cudaErrorNotReady);  // queries leave it behind
          gate.open();
          EXPECT(cudaEventSynchronize(filled) == cudaSuccess);
          EXPECT(cudaStreamSynchronize(second) == cudaSuccess);
          EXPECT(read_back(memory, 1) == Bytes(1, std::byte{2}));
        }) == 0);
}

TEST_CASE("Destroyed streams end their work and their threads", "[simulated]") {
  CHECK(status_of([] {
          constexpr std::size_t count = 20;
          std::byte* const memory = device_memory(1);
          const std::size_t threads = threads_of_this_process();
          std::vector<cudaStream_t> streams(count);
          for (cudaStream_t& stream : streams) stream = new_stream();
          EXPECT(simulated_gpu::live_streams() == count);
          EXPECT(threads_of_this_process() >= threads + count);
          const cudaEvent_t done = new_event();
          EXPECT(simulated_gpu::live_events() == 1);
          EXPECT(cudaMemsetAsync(memory, 3, 1, streams.back()) == cudaSuccess);
          EXPECT(cudaEventRecord(done, streams.back()) == cudaSuccess);
          for (cudaStream_t stream : streams) EXPECT(cudaStreamDestroy(stream) == cudaSuccess);
          EXPECT(cudaEventSynchronize(done) == cudaSuccess);
          EXPECT(cudaEventDestroy(done) == cudaSuccess);
          EXPECT(cudaStreamQuery(streams.back()) == cudaErrorInvalidResourceHandle);
          EXPECT(simulated_gpu::live_streams() == 0 && simulated_gpu::live_events() == 0);
          // Sanitizers have threads of their own, which may start at any time.
          while (threads_of_this_process() > threads + count / 2) std::this_thread::yield();
          EXPECT(read_back(memory, 1) == Bytes(1, std::byte{3}));
        }) == 0);
}

TEST_CASE("Events measure time unless they are told not to", "[simulated]") {
  CHECK(status_of([] {
          const cudaEvent_t start = new_event(cudaEventDefault);
          const cudaEvent_t end = new_event(cudaEventDefault);
          float milliseconds = -1;
          EXPECT(cudaEventRecord(start, nullptr) == cudaSuccess);
          EXPECT(cudaEventRecord(end, nullptr) == cudaSuccess);
          EXPECT(cudaEventSynchronize(end) == cudaSuccess);
          EXPECT(cudaEventElapsedTime(&milliseconds, start, end) == cudaSuccess);
          EXPECT(milliseconds >= 0);
          const cudaEvent_t untimed = new_event();
          EXPECT(cudaEventRecord(untimed, nullptr) == cudaSuccess);
          EXPECT(cudaEventElapsedTime(&milliseconds, start, untimed) ==
                 cudaErrorInvalidResourceHandle);
        }) == 0);
}

TEST_CASE("Questions create no context, work does", "[simulated]") {
  CHECK(status_of({{"SIMULATED_GPUS", "3"}}, [] {
          int number = 0;
          cudaDeviceProp properties{};
          std::array<char, 16> bus_id{};
          EXPECT(cudaGetDeviceCount(&number) == cudaSuccess && number == 3);
          EXPECT(cudaGetDevice(&number) == cudaSuccess && number == 0);
          EXPECT(cudaGetDeviceProperties(&properties, 1) == cudaSuccess);
          EXPECT(cudaDeviceGetPCIBusId(bus_id.data(), 16, 1) == cudaSuccess);
          EXPECT(std::string(bus_id.data()) == "0000:02:00.0");
          EXPECT(cudaGetDevice(&number) == cudaSuccess);
          EXPECT(simulated_gpu::devices_with_context().empty());
          EXPECT(cudaSetDevice(2) == cudaSuccess);
          EXPECT(simulated_gpu::devices_with_context() == std::vector<int>{2});
          std::thread([] { new_event(); }).join();  // a thread of which nobody has thought
          EXPECT(simulated_gpu::devices_with_context() == std::vector<int>({0, 2}));
          EXPECT(cudaSetDevice(3) == cudaErrorInvalidDevice);
        }) == 0);
}

TEST_CASE("The driver's contexts are the runtime's", "[simulated]") {
  CHECK(status_of({{"SIMULATED_GPUS", "2"}}, [] {
          const auto retain =
              driver_function<decltype(&cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain");
          const auto release =
              driver_function<decltype(&cuDevicePrimaryCtxRelease)>("cuDevicePrimaryCtxRelease");
          const auto push = driver_function<decltype(&cuCtxPushCurrent)>("cuCtxPushCurrent");
          const auto pop = driver_function<decltype(&cuCtxPopCurrent)>("cuCtxPopCurrent");
          const auto current = driver_function<decltype(&cuCtxGetCurrent)>("cuCtxGetCurrent");
          CUcontext context = nullptr;
          CUcontext popped = nullptr;
          EXPECT(retain(&context, 1) == CUDA_SUCCESS && push(context) == CUDA_SUCCESS);
          std::byte* const memory = device_memory(10);
          EXPECT(simulated_gpu::device_bytes(1) == 10);
          EXPECT(cudaFree(memory) == cudaSuccess);
          EXPECT(pop(&popped) == CUDA_SUCCESS && popped == context);
          EXPECT(pop(&popped) == CUDA_ERROR_INVALID_CONTEXT);
          EXPECT(current(&popped) == CUDA_SUCCESS && popped == nullptr);
          EXPECT(simulated_gpu::devices_with_context() == std::vector<int>{1});
          EXPECT(release(1) == CUDA_SUCCESS && release(1) == CUDA_ERROR_INVALID_CONTEXT);
        }) == 0);
}

TEST_CASE("Machines without a GPU or a driver", "[simulated]") {
  CHECK(status_of({{"SIMULATED_GPUS", "0"}}, [] {
          int count = -1;
          EXPECT(cudaGetDeviceCount(&count) == cudaErrorNoDevice && count == 0);
          EXPECT(cudaFree(nullptr) == cudaErrorNoDevice);
        }) == 0);
  CHECK(status_of({{"SIMULATED_GPUS", "nodriver"}}, [] {
          int number = -1;
          EXPECT(cudaGetDeviceCount(&number) == cudaErrorInsufficientDriver);
          EXPECT(cudaDriverGetVersion(&number) == cudaSuccess && number == 0);
          EXPECT(std::string(cudaGetErrorName(cudaGetLastError())) ==
                 "cudaErrorInsufficientDriver");
        }) == 0);
}

TEST_CASE("Kernels run on the CPU, with the arguments they were launched with", "[simulated]") {
  CHECK(status_of([] {
          register_add();
          std::byte* const memory = device_memory(1000);
          const cudaStream_t stream = new_stream();
          Gate gate;
          gate.close(stream);
          EXPECT(cudaMemsetAsync(memory, 1, 1000, stream) == cudaSuccess);
          EXPECT(launch_add(memory, 1000, 5, stream) == cudaSuccess);
          EXPECT(launch_add(memory, 1, 6, stream) == cudaSuccess);
          gate.open();
          EXPECT(cudaStreamSynchronize(stream) == cudaSuccess);
          EXPECT(read_back(memory, 2) == Bytes({std::byte{12}, std::byte{6}}));
          EXPECT(simulated_gpu::kernel_launches() == 2);
        }) == 0);
}

TEST_CASE("Kernels that touch what is no device memory fail the GPU", "[simulated]") {
  CHECK(status_of([] {
          register_add();
          std::byte host{};
          Gate gate;
          gate.close(nullptr);
          EXPECT(launch_add(&host, 1, 1, nullptr) == cudaSuccess);
          gate.open();
          EXPECT(cudaStreamSynchronize(nullptr) == cudaErrorIllegalAddress);
          EXPECT(host == std::byte{0});
        }) == broke_a_rule);
}

TEST_CASE("Kernels without an implementation break a rule", "[simulated]") {
  CHECK(status_of([] {
          EXPECT(launch_unknown(device_memory(1), nullptr) == cudaErrorInvalidDeviceFunction);
        }) == broke_a_rule);
}

TEST_CASE("Callbacks must not call the runtime", "[simulated]") {
  CHECK(status_of([] {
          const auto call = [](void*) { cudaGetDevice(nullptr); };
          EXPECT(cudaLaunchHostFunc(nullptr, call, nullptr) == cudaSuccess);
          EXPECT(cudaStreamSynchronize(nullptr) == cudaSuccess);
        }) == broke_a_rule);
}

TEST_CASE("A failing operation ends all work of its GPU", "[simulated]") {
  const auto body = [] {
    std::byte* const memory = device_memory(1);
    const cudaStream_t stream = new_stream();
    const cudaEvent_t end = new_event();
    Gate gate;
    gate.close(stream);
    for (const int value : {1, 2, 3}) {  // the second one fails
      EXPECT(cudaMemsetAsync(memory, value, 1, stream) == cudaSuccess);
    }
    EXPECT(cudaEventRecord(end, stream) == cudaSuccess);
    gate.open();
    EXPECT(cudaEventSynchronize(end) == cudaErrorIllegalAddress);
    EXPECT(*simulated_gpu::host_view(memory) == std::byte{1});
    EXPECT(cudaStreamQuery(stream) == cudaErrorIllegalAddress);
    EXPECT(cudaGetLastError() == cudaErrorIllegalAddress);
    EXPECT(cudaGetLastError() == cudaErrorIllegalAddress);  // and stays
  };
  CHECK(status_of({{"SIMULATED_GPU_FAIL_AFTER", "2"}}, body) == 0);
  CHECK(status_of([&] {
          simulated_gpu::fail_after(2);
          body();
        }) == 0);
}

TEST_CASE("Rules broken on purpose can be forgotten", "[simulated]") {
  CHECK(status_of([] {
          EXPECT(cudaFree(device_memory(8) + 1) == cudaErrorInvalidValue);
          EXPECT(simulated_gpu::violations().size() == 1);
          simulated_gpu::clear_violations();
        }) == 0);
}

}  // namespace
