// Which GPU a rank of several on one node gets, and what comes of it. The environment says how many
// GPUs there are.
#include <chrono>
#include <cuda_runtime_api.h>
#include <thread>
#include <utility>

#include "safeshuffle/mpi.hpp"
#include "safeshuffle/nccl.hpp"
#include "safeshuffle/session.hpp"

#include "comm/await.hpp"
#include "comm/exchange/nccl_transport.hpp"
#include "device/cuda/cuda_device.hpp"
#include "support/bindings.hpp"
#include "support/catch.hpp"
#include "support/group.hpp"
#include "support/shared_model.hpp"
#include "support/simulated_gpu/inspect.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

TEST_CASE("ranks take the GPUs of their node by local rank, and touch no other", "[.][3 for 3]") {
  const auto kind = GENERATE(Device::cuda(), Device::automatic());
  const Communicator comm = from_mpi(MPI_COMM_WORLD, kind);
  CHECK(comm.device() == DeviceKind::cuda);
  CHECK(comm.device_handle()->ordinal() == static_cast<int>(world_rank()));
  CHECK(simulated_gpu::devices_with_context() == std::vector<int>{static_cast<int>(world_rank())});
}

TEST_CASE("replicas of ranks that have other numbers in the world, and on other GPUs",
          "[.][4 for 4]") {
  const std::uint32_t member = (world_rank() + 1) % world_size();
  const auto gpu = static_cast<int>((world_rank() + 2) % world_size());
  MPI_Comm group = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, static_cast<int>(member), &group);
  {
    const Communicator comm = from_mpi(group, Device::cuda(gpu));
    REQUIRE(comm.rank() == member);
    CHECK(comm.device_handle()->ordinal() == gpu);
    const SharedModel model(random_model(31), 2);
    PlanOptions options = with_window(4096);
    options.replicas = 2;
    const TensorSet loaded = load(model.plan(options), comm);
    const bool right = is_right(loaded, member);
    verify(loaded, comm);
    CHECK(right);
    CHECK(simulated_gpu::devices_with_context() == std::vector<int>{gpu});
  }
  MPI_Comm_free(&group);
}

TEST_CASE("automatic is the host where ranks would have to share a GPU", "[.][1 for 3]") {
  const Communicator comm = from_mpi(MPI_COMM_WORLD, Device::automatic());
  CHECK(comm.device() == DeviceKind::host);
  CHECK(comm.device_handle()->description() == "host (rank 1 would share a GPU with rank 0)");
  CHECK(simulated_gpu::devices_with_context().empty());
}

TEST_CASE("what is cut like the matrices of real models moves in aligned runs", "[.][nccl]") {
  const std::uint64_t before = simulated_gpu::unaligned_nccl_operations();
  const SharedModel model(plain_model(5));
  const TensorSet loaded = load(model.plan(with_window(16384)), world_group());
  const bool right = is_right(loaded, world_rank());
  CHECK(right);
  CHECK(simulated_gpu::unaligned_nccl_operations() == before);
}

TEST_CASE("on several ranks, too, a second load into memory of the caller allocates nothing",
          "[.][nccl]") {
  const SharedModel model(plain_model(5));
  const auto memory = world_group().device_handle()->allocate(model.catalog.tensor_bytes());
  const auto bindings = whole_tensors(model.catalog, memory.get());
  Session session(model.path(), world_group(), replicated());
  session.load_into(bindings);
  const std::uint64_t before = simulated_gpu::allocations_so_far();
  session.load_into(bindings);
  CHECK(simulated_gpu::allocations_so_far() == before);
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("a GPU without memory for the transport is a MemoryError on all ranks", "[.][nccl]") {
  if (world_size() == 1) return;
  void* rest = nullptr;
  if (is_last_rank()) {
    std::size_t free = 0;
    std::size_t total = 0;
    REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
    REQUIRE(cudaMalloc(&rest, free) == cudaSuccess);
  }
  try {
    static_cast<void>(world_group());
    FAIL("no exception");
  } catch (const MemoryError& error) {
    CHECK(error.record().rank == static_cast<std::int32_t>(world_size()) - 1);
  }
  CHECK(cudaFree(rest) == cudaSuccess);
}

TEST_CASE("what hangs on the GPU of a borrowed communicator keeps its memory", "[.][nccl]") {
  if (world_size() == 1) return;
  const std::uint64_t before = simulated_gpu::device_bytes(0);
  auto device = std::make_shared<device::CudaDevice>(0);
  const auto gpu = device->session()->shared_gpu();
  const auto id = gather_texts(world_rank() == 0 ? comm::make_nccl_id() : "").front();
  const auto owner = comm::NcclGroup::create(id, world_rank(), world_size(), gpu);
  while (!owner->ready()) std::this_thread::yield();
  bool lost = false;
  if (!is_last_rank()) {
    const auto queue = device->make_queue();
    const auto transport =
        comm::make_nccl_transport(comm::NcclGroup::borrow(owner->comm(), gpu),
                                  comm::NcclBuffers(std::move(device), world_size()));
    const auto nobody = comm::make_self_control();
    try {
      comm::await(*transport->connect(*queue), *nobody, "it", std::chrono::seconds(1), [] {});
    } catch (const TimeoutError&) {
      lost = true;
    }
  }
  const std::uint64_t kept = simulated_gpu::device_bytes(0);
  owner->break_off();
  MPI_Barrier(MPI_COMM_WORLD);
  if (is_last_rank()) return;
  CHECK(lost);
  CHECK(kept > before);
}
