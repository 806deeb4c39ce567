// GPUs against the device contract, and what only GPUs can get wrong.
#include "device/cuda/cuda_device.hpp"

#include <chrono>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <optional>
#include <thread>

#include "contract/device_contract.hpp"
#include "device/cuda/call.hpp"
#include "device/cuda/cuda_packer.hpp"
#include "device/cuda/cuda_queue.hpp"
#include "gpu/open_gpu.hpp"

using namespace safeshuffle;

namespace {

/// A copy of `bytes` within the device, as pack items see it.
PackItem whole(std::uint64_t bytes) {
  return {.rows = 1, .row_bytes = bytes, .source_stride = bytes, .destination_stride = bytes};
}

/// Lets what is enqueued on `stream` from now on begin late.
void delay(void* stream) {
  const auto sleep = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(100)); };
  device::check_cuda(cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), sleep, nullptr),
                     "cudaLaunchHostFunc");
}

}  // namespace

TEST_CASE("a GPU keeps the device contract", "[gpu][device][sanitized]") {
  contract::check_device(open_gpu);
}

TEST_CASE("a GPU says which it is", "[gpu][device]") {
  const auto device = open_gpu();
  CHECK(device->kind() == DeviceKind::cuda);
  CHECK(device->ordinal() == 0);
  CHECK(device->description().find(" at ") != std::string::npos);
  CHECK(device->description().find(device::gpu_address(0, 0)) != std::string::npos);
  CHECK(device::gpu_obstacle().empty());
}

TEST_CASE("local ranks take the GPUs in turns", "[gpu][device]") {
  const auto count = static_cast<std::uint32_t>(device::count_gpus());
  CHECK(device::open_device(Device::cuda(), count)->ordinal() == 0);
  CHECK(device::open_device(Device::cuda(), 2 * count - 1)->ordinal() ==
        static_cast<int>(count) - 1);
}

TEST_CASE("a GPU that is not there is a ConfigError", "[gpu][device]") {
  CHECK_THROWS_AS(device::open_device(Device::cuda(4711)), ConfigError);
  CHECK_THROWS_AS(device::gpu_address(4711, 0), ConfigError);
}

TEST_CASE("longer tables than one launch takes are packed whole", "[gpu][device]") {
  const auto device = open_gpu();
  constexpr std::size_t count = 2 * device::CudaPacker::most_items + 3;
  const contract::Bytes slab = testing::PseudoRandom(4).bytes(count * 3 + 1);
  const auto source = testing::upload(*device, slab);
  const auto target = testing::upload(*device, contract::Bytes(count * 3));
  std::vector<PackItem> items(count, whole(3));
  for (std::size_t i = 0; i < count; ++i) {  // in reverse
    items[i].source = 1 + 3 * i;
    items[i].destination = 3 * (count - 1 - i);
  }
  const auto queue = device->make_queue();
  const auto packer = device->make_packer(*queue);
  delay(queue->native_handle());  // no table may be filled again before it was used
  packer->pack(items, {source.get(), target.get(), nullptr});
  testing::wait_until([&] { return queue->idle(); });
  const contract::Bytes packed = testing::download(*device, target.get(), count * 3);
  bool right = true;
  for (std::size_t i = 0; i < count; ++i) {
    const std::byte* const expected = slab.data() + 1 + 3 * i;
    right &= std::equal(expected, expected + 3, packed.data() + 3 * (count - 1 - i));
  }
  CHECK(right);
}

TEST_CASE("staged slots begin as far behind a page as asked", "[gpu][device]") {
  const auto device = open_gpu();
  const auto memory = device->allocate(20'000);
  const auto staging = device->make_staging(8192, 2);
  CHECK(staging->pinned_bytes() >= 2 * 8192);
  for (const std::size_t skip : {0U, 1U, 4095U}) {
    const auto slot = staging->try_acquire(memory.get() + 10'000, 8192, skip);
    REQUIRE(slot);
    CHECK(reinterpret_cast<std::uintptr_t>(slot->host.data()) % 4096 == skip);
    staging->discard(*slot);
  }
}

TEST_CASE("no slot is handed out twice, and asking for one never blocks", "[gpu][device]") {
  const auto device = open_gpu();
  const auto memory = device->allocate(8192);
  const auto staging = device->make_staging(4096, 2);
  const auto first = staging->try_acquire(memory.get(), 4096, 0);
  const auto second = staging->try_acquire(memory.get() + 4096, 4096, 0);
  REQUIRE(first);
  REQUIRE(second);
  CHECK(first->host.data() != second->host.data());
  CHECK_FALSE(staging->try_acquire(memory.get(), 4096, 0));
  staging->discard(*first);
  CHECK(staging->try_acquire(memory.get(), 4096, 0)->host.data() == first->host.data());
}

TEST_CASE("a queue goes on after what is enqueued on a stream that it follows", "[gpu][device]") {
  cudaStream_t stream = nullptr;
  device::check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating");
  {
    device::CudaDevice device(0, stream);
    constexpr std::size_t bytes = std::size_t{64} << 20;
    const auto source = device.allocate(bytes);
    const auto target = device.allocate(bytes);
    const auto queue = device.make_queue();
    const auto packer = device.make_packer(*queue);
    delay(stream);
    device::check_cuda(cudaMemsetAsync(source.get(), 2, bytes, stream), "cudaMemsetAsync");
    queue->follow_caller();
    packer->pack(std::vector<PackItem>(1, whole(bytes)), {source.get(), target.get(), nullptr});
    testing::wait_until([&] { return queue->idle(); });
    CHECK((testing::download(device, target.get() + bytes - 100, 100) ==
           contract::Bytes(100, std::byte{2})));
  }
  device::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

TEST_CASE("a stream that is captured is refused before that can disturb the capture",
          "[gpu][device]") {
  // The legacy default stream would have to wait for a blocking one that is captured.
  const bool legacy = GENERATE(false, true);
  const unsigned flags = legacy ? cudaStreamDefault : cudaStreamNonBlocking;
  cudaStream_t stream = nullptr;
  device::check_cuda(cudaStreamCreateWithFlags(&stream, flags), "creating");
  {
    const cudaStream_t followed = legacy ? cudaStreamLegacy : stream;
    device::CudaDevice device(0, followed);
    const auto queue = device.make_queue();
    device::check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capturing");
    CHECK_THROWS_AS(device.make_queue(), ConfigError);
    CHECK_THROWS_AS(queue->follow_caller(), ConfigError);
    CHECK_THROWS_AS(device::CudaDevice(0, followed), ConfigError);
    CHECK(cudaGetLastError() == cudaSuccess);  // nothing is left for the caller's checks
    cudaGraph_t graph = nullptr;
    device::check_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    if (graph != nullptr) device::check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    CHECK_NOTHROW(device.make_queue());
  }
  device::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

TEST_CASE("a thread's current device is left as it was", "[gpu][device]") {
  std::optional<CUcontext> before;
  std::optional<CUcontext> after;
  std::thread fresh([&] {  // nothing is current on a thread that has not used CUDA
    const auto current = [] {
      void* function = nullptr;
      auto found = cudaDriverEntryPointSymbolNotFound;
      cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &function, 12000, cudaEnableDefault,
                                       &found);
      CUcontext context = nullptr;
      reinterpret_cast<decltype(&cuCtxGetCurrent)>(function)(&context);
      return context;
    };
    before = current();
    const auto device = open_gpu();
    const auto memory = testing::upload(*device, contract::Bytes(1000, std::byte{7}));
    after = current();
  });
  fresh.join();
  REQUIRE(before);
  CHECK(*before == nullptr);
  CHECK(*after == nullptr);
}

TEST_CASE("what an abandoned queue's device has is kept", "[gpu][device]") {
  const auto device = open_gpu();
  const auto live = [] {
    std::size_t free = 0;
    std::size_t total = 0;
    cudaMemGetInfo(&free, &total);
    return total - free;
  };
  constexpr std::size_t bytes = std::size_t{64} << 20;
  auto memory = device->allocate(bytes);
  const std::size_t before = live();
  device->make_queue()->abandon();
  memory.reset();
  CHECK(live() >= before);
}
