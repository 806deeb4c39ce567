// What only a simulated GPU tells: where contexts are, what is given back, how faults end.
#include "device/device.hpp"

#include <cuda_runtime_api.h>
#include <future>
#include <thread>

#include "safeshuffle/loader.hpp"
#include "safeshuffle/session.hpp"

#include "device/cuda/cuda_device.hpp"
#include "io/reader.hpp"
#include "source/files.hpp"
#include "support/bindings.hpp"
#include "support/catch.hpp"
#include "support/device_memory.hpp"
#include "support/own_model.hpp"
#include "support/sample_file.hpp"
#include "support/simulated_gpu/inspect.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

TensorSet load_onto(Device device, const OwnModel& model) {
  PlanOptions options;
  options.window = 8192;
  return load(model.plan(options), self(device));
}

constexpr std::size_t slot_bytes = 4096;

/// Reads a whole file into device memory, with one thread and one slot.
io::BatchStatus read_through_one_slot(device::Device& device, const FileInfo& file,
                                      std::byte* destination) {
  const auto staging = device.make_staging(slot_bytes, 1);
  const auto reader =
      io::make_reader({.threads = 1, .chunk = slot_bytes}, source::files(), {file}, *staging);
  const io::ReadRange range{0, 0, file.size, destination};
  reader->submit({&range, 1});
  io::BatchStatus status;
  wait_until([&] { return (status = reader->poll(0, std::chrono::milliseconds(1))).done; });
  return status;
}

struct Resources {
  std::uint64_t device_bytes = simulated_gpu::device_bytes(0);
  std::uint64_t pinned_bytes = simulated_gpu::pinned_bytes();
  std::size_t streams = simulated_gpu::live_streams();
  std::size_t events = simulated_gpu::live_events();

  bool operator==(const Resources&) const = default;
};

}  // namespace

TEST_CASE("a load has a context on its own GPU only, whatever thread it runs on",
          "[.][one of two]") {
  const OwnModel model(3);
  bool right = false;
  std::thread([&] { right = is_right(load_onto(Device::cuda(1), model), 0); }).join();
  CHECK(right);
  CHECK(simulated_gpu::devices_with_context() == std::vector<int>{1});
}

// A real GPU may be waited for when memory is allocated, and nothing would show.
TEST_CASE("a queue begins after what the caller has enqueued", "[gpu][device]") {
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  std::promise<void> release;
  const auto wait = [](void* promise) {
    static_cast<std::promise<void>*>(promise)->get_future().wait();
  };
  REQUIRE(cudaLaunchHostFunc(stream, wait, &release) == cudaSuccess);
  const auto queue = device::CudaDevice(0, stream).make_queue();
  CHECK_FALSE(queue->idle());
  release.set_value();
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  while (!queue->idle()) std::this_thread::yield();
}

TEST_CASE("one thread fills a GPU through one slot", "[gpu][device]") {
  const ScratchDirectory directory;
  const FileInfo file = write_sample(directory.file("a"), 0, 50 * slot_bytes + 77);
  const auto device = device::open_device(Device::cuda());
  const auto memory = device->allocate(file.size);
  const io::BatchStatus status = read_through_one_slot(*device, file, memory.get());
  CHECK_FALSE(status.error);
  CHECK(status.bytes == file.size);
  CHECK(is_sample(download(*device, memory.get(), file.size), 0, 0));
}

TEST_CASE("a copy that fails ends all reads that wait for its slot", "[.][copy fault]") {
  const ScratchDirectory directory;
  const FileInfo file = write_sample(directory.file("a"), 0, 50 * slot_bytes);
  const auto device = device::open_device(Device::cuda());
  const auto memory = device->allocate(file.size);
  const io::BatchStatus status = read_through_one_slot(*device, file, memory.get());
  REQUIRE(status.error);
  CHECK(status.error->kind == ErrorKind::transport);
  CHECK(status.bytes < file.size);
}

TEST_CASE("loads give back all they took", "[gpu][load]") {
  const OwnModel model(3);
  const Resources before;
  {
    const TensorSet loaded = load_onto(Device::cuda(), model);
    CHECK(simulated_gpu::device_bytes(0) > before.device_bytes);
    CHECK(simulated_gpu::pinned_bytes() == before.pinned_bytes);
  }
  CHECK(Resources() == before);
  CHECK(simulated_gpu::violations().empty());
}

TEST_CASE("loads into memory of the caller that follow each other allocate nothing",
          "[gpu][load]") {
  const OwnModel model(3);
  const auto device = device::open_device(Device::cuda());
  const auto memory = device->allocate(model.catalog.tensor_bytes());
  const auto bindings = whole_tensors(model.catalog, memory.get());
  Session session(model.directory.path(), self(Device::cuda()));
  session.load_into(bindings);
  const std::uint64_t before = simulated_gpu::allocations_so_far();
  session.load_into(bindings);
  session.reopen(model.directory.path());  // as for new weights
  session.load_into(bindings);
  CHECK(simulated_gpu::allocations_so_far() == before);
}

TEST_CASE("memory of the caller must be that of the GPU", "[gpu][load]") {
  const OwnModel model(3);
  std::vector<std::byte> memory(model.catalog.tensor_bytes());  // of the host
  Session session(model.directory.path(), self(Device::cuda()));
  CHECK_THROWS_AS(session.load_into(whole_tensors(model.catalog, memory.data())), PlanError);
}

TEST_CASE("a packer takes as much memory as its device says, a queue none", "[gpu][device]") {
  const auto device = device::open_device(Device::cuda());
  const Resources before;
  const auto queue = device->make_queue();
  CHECK(simulated_gpu::device_bytes(0) == before.device_bytes);
  CHECK(simulated_gpu::pinned_bytes() == before.pinned_bytes);
  const auto packer = device->make_packer(*queue);
  // Two allocations, each with a page more for its alignment.
  const std::uint64_t expected = device->packer_bytes() + std::uint64_t{2} * 4096;
  CHECK(simulated_gpu::device_bytes(0) - before.device_bytes == expected);
  CHECK(simulated_gpu::pinned_bytes() - before.pinned_bytes == expected);
}

TEST_CASE("a GPU that fails ends a load with a TransportError", "[.][fault]") {
  const OwnModel model(3);
  const auto device = device::open_device(Device::cuda());
  try {
    const TensorSet loaded = load_onto(Device::cuda(), model);
    FAIL("no exception");
  } catch (const TransportError& error) {
    CHECK(error.record().cause.find("cudaErrorIllegalAddress") != std::string::npos);
  }
  // That it fails is not want of memory, whichever call is the next.
  CHECK_THROWS_AS(device->allocate(8), TransportError);
  CHECK_THROWS_AS(device->make_staging(8, 1), TransportError);
}
