// The simulated NCCL, between processes of this machine.
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cuda_runtime_api.h>
#include <filesystem>
#include <functional>
#include <nccl.h>
#include <new>
#include <string>
#include <sys/mman.h>
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
using Statuses = std::vector<int>;

/// Memory that the ranks of a test share.
struct Shared {
  std::atomic<bool> id_known{false};
  ncclUniqueId id{};
  std::atomic<int> arrived{0};

  /// Rank 0 makes the id, as a launcher's first process does.
  const ncclUniqueId& id_for(int rank) {
    if (rank == 0) {
      EXPECT(ncclGetUniqueId(&id) == ncclSuccess);
      id_known = true;
    }
    while (!id_known) std::this_thread::yield();
    return id;
  }

  /// Returns once `count` calls have been made by all ranks together.
  void arrive(int count) {
    ++arrived;
    while (arrived < count) std::this_thread::yield();
  }
};

Shared& make_shared_memory() {
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return *new (memory) Shared;
}

Environment environment_of(int rank) {
  return {{"NCCL_HOSTID", "host" + std::to_string(rank)},
          {"SIMULATED_GPU_SEED", std::to_string(rank + 1)}};
}

using RankBody = std::function<void(int rank, Shared& shared)>;

std::vector<pid_t> start_ranks(int size, Shared& shared, const RankBody& body) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    children.push_back(start_child(environment_of(rank), [&] { body(rank, shared); }));
  }
  return children;
}

/// The exit statuses of `size` ranks.
Statuses run_ranks(int size, const RankBody& body) {
  Statuses statuses;
  for (const pid_t child : start_ranks(size, make_shared_memory(), body)) {
    statuses.push_back(end_of(child));
  }
  return statuses;
}

/// Waits, as programs do, until the communicator is no longer in progress.
ncclResult_t settled(ncclComm_t communicator) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    EXPECT(ncclCommGetAsyncError(communicator, &state) == ncclSuccess);
  }
  return state;
}

/// A rank with its communicator and a stream.
struct Rank {
  Rank(int number, int of, const ncclUniqueId& id, bool blocking = true) : rank(number), size(of) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    const ncclResult_t result = ncclCommInitRankConfig(&communicator, size, id, rank, &config);
    EXPECT(result == (blocking ? ncclSuccess : ncclInProgress));
    EXPECT(settled(communicator) == ncclSuccess);
    EXPECT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  }

  void wait() const { EXPECT(cudaStreamSynchronize(stream) == cudaSuccess); }

  int rank;
  int size;
  ncclComm_t communicator = nullptr;
  cudaStream_t stream = nullptr;
};

std::byte* filled(std::size_t bytes, int value) {
  std::byte* const memory = device_memory(bytes);
  std::memset(simulated_gpu::host_view(memory), value, bytes);
  return memory;
}

bool holds(const std::byte* memory, std::size_t bytes, int value) {
  const std::byte* const view = simulated_gpu::host_view(memory);
  for (std::size_t i = 0; i < bytes; ++i) {
    if (view[i] != static_cast<std::byte>(value)) return false;
  }
  return true;
}

/// More than the buffers of a socket hold.
constexpr std::size_t large = std::size_t{3} << 20;

/// Every rank sends `large` bytes to every rank, itself among them, all sends before all receives.
void exchange_with_all(const Rank& self) {
  std::vector<std::byte*> received;
  std::byte* const sent = filled(large, 10 + self.rank);
  for (int peer = 0; peer < self.size; ++peer) received.push_back(device_memory(large));
  EXPECT(ncclGroupStart() == ncclSuccess);
  for (int peer = 0; peer < self.size; ++peer) {
    EXPECT(ncclSend(sent, large, ncclInt8, peer, self.communicator, self.stream) == ncclSuccess);
  }
  for (int peer = self.size - 1; peer >= 0; --peer) {
    EXPECT(ncclRecv(received[static_cast<std::size_t>(peer)], large, ncclInt8, peer,
                    self.communicator, self.stream) == ncclSuccess);
  }
  const ncclResult_t result = ncclGroupEnd();
  EXPECT(result == ncclSuccess || result == ncclInProgress);
  EXPECT(settled(self.communicator) == ncclSuccess);
  self.wait();
  for (int peer = 0; peer < self.size; ++peer) {
    EXPECT(holds(received[static_cast<std::size_t>(peer)], large, 10 + peer));
  }
}

/// Sends to and receives from the other one of two ranks, without waiting.
void start_swap(const Rank& self, std::size_t sent_bytes, std::size_t received_bytes) {
  std::byte* const sent = device_memory(sent_bytes);
  std::byte* const received = device_memory(received_bytes);
  EXPECT(ncclGroupStart() == ncclSuccess);
  EXPECT(ncclSend(sent, sent_bytes, ncclInt8, 1 - self.rank, self.communicator, self.stream) ==
         ncclSuccess);
  EXPECT(ncclRecv(received, received_bytes, ncclInt8, 1 - self.rank, self.communicator,
                  self.stream) == ncclSuccess);
  EXPECT(ncclGroupEnd() == ncclSuccess);
}

void start_swap(const Rank& self, std::size_t bytes) {
  start_swap(self, bytes, bytes);
}

ncclResult_t wait_for_error(ncclComm_t communicator) {
  ncclResult_t state = ncclSuccess;
  while (state == ncclSuccess) {
    EXPECT(ncclCommGetAsyncError(communicator, &state) == ncclSuccess);
  }
  return state;
}

TEST_CASE("Ranks exchange messages in any order within a group", "[simulated][nccl]") {
  for (const int size : {1, 2, 3, 4}) {
    CHECK(run_ranks(size, [&](int rank, Shared& shared) {
            const ncclUniqueId& id = shared.id_for(rank);
            const Rank self(rank, size, id);
            EXPECT(size == 1 ||
                   !std::filesystem::exists(std::string(id.internal) + "/" + std::to_string(rank)));
            exchange_with_all(self);
            exchange_with_all(self);
            EXPECT(simulated_gpu::live_communicators() == 1);
            EXPECT(ncclCommDestroy(self.communicator) == ncclSuccess);
            EXPECT(simulated_gpu::live_communicators() == 0);
            shared.arrive(size);
            EXPECT(!std::filesystem::exists(id.internal));
          }) == Statuses(static_cast<std::size_t>(size), 0));
  }
}

TEST_CASE("Non-blocking communicators are in progress for a while", "[simulated][nccl]") {
  CHECK(run_ranks(3, [](int rank, Shared& shared) {
          const Rank self(rank, 3, shared.id_for(rank), false);
          for (int i = 0; i < 4; ++i) exchange_with_all(self);
          EXPECT(ncclCommFinalize(self.communicator) == ncclInProgress);
          EXPECT(settled(self.communicator) == ncclSuccess);
          EXPECT(ncclCommDestroy(self.communicator) == ncclSuccess);
        }) == Statuses(3, 0));
}

TEST_CASE("Using a communicator that is in progress breaks a rule", "[simulated][nccl]") {
  CHECK(run_ranks(2, [](int rank, Shared& shared) {
          ncclComm_t communicator = nullptr;
          ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
          config.blocking = 0;
          const ncclUniqueId& id = shared.id_for(rank);
          if (rank == 1) shared.arrive(2);  // later than rank 0 asks
          EXPECT(ncclCommInitRankConfig(&communicator, 2, id, rank, &config) == ncclInProgress);
          int count = 0;
          if (rank == 0) {
            EXPECT(ncclCommCount(communicator, &count) == ncclInvalidArgument);
            shared.arrive(2);
          }
          EXPECT(settled(communicator) == ncclSuccess);
          EXPECT(ncclCommCount(communicator, &count) == ncclSuccess && count == 2);
        }) == Statuses({broke_a_rule, 0}));
}

TEST_CASE("Broadcasts of several roots share a group with messages", "[simulated][nccl]") {
  CHECK(run_ranks(3, [](int rank, Shared& shared) {
          const Rank self(rank, 3, shared.id_for(rank));
          std::array<std::byte*, 3> memory{};
          for (std::byte*& part : memory) part = filled(large, 0);
          std::byte* const source = filled(large, 20 + rank);
          std::byte* const received = device_memory(100);
          EXPECT(ncclGroupStart() == ncclSuccess);
          EXPECT(ncclSend(source, 100, ncclInt8, (rank + 1) % 3, self.communicator, self.stream) ==
                 ncclSuccess);
          for (int root = 0; root < 3; ++root) {
            EXPECT(ncclBroadcast(root == rank ? source : nullptr,
                                 memory[static_cast<std::size_t>(root)], large, ncclInt8, root,
                                 self.communicator, self.stream) == ncclSuccess);
          }
          EXPECT(ncclRecv(received, 100, ncclInt8, (rank + 2) % 3, self.communicator,
                          self.stream) == ncclSuccess);
          EXPECT(ncclGroupEnd() == ncclSuccess);
          self.wait();
          for (int root = 0; root < 3; ++root) {
            EXPECT(holds(memory[static_cast<std::size_t>(root)], large, 20 + root));
          }
          EXPECT(holds(received, 100, 20 + (rank + 2) % 3));
        }) == Statuses(3, 0));
}

TEST_CASE("Gathers and reductions", "[simulated][nccl]") {
  CHECK(run_ranks(3, [](int rank, Shared& shared) {
          const Rank self(rank, 3, shared.id_for(rank));
          std::byte* const memory = device_memory(64);
          auto* const values = reinterpret_cast<std::uint64_t*>(simulated_gpu::host_view(memory));
          values[rank * 2] = static_cast<std::uint64_t>(rank) + 1;
          values[rank * 2 + 1] = ~std::uint64_t{0};
          EXPECT(ncclAllGather(memory + rank * 16, memory, 2, ncclUint64, self.communicator,
                               self.stream) == ncclSuccess);
          EXPECT(ncclAllReduce(memory + rank * 16, memory + 48, 2, ncclUint64, ncclSum,
                               self.communicator, self.stream) == ncclSuccess);
          self.wait();
          EXPECT(values[0] == 1 && values[2] == 2 && values[4] == 3);
          EXPECT(values[6] == 6 && values[7] == ~std::uint64_t{0} - 2);
          EXPECT(ncclAllReduce(memory + rank * 16, memory + rank * 16, 1, ncclUint64, ncclMax,
                               self.communicator, self.stream) == ncclSuccess);
          self.wait();
          EXPECT(values[rank * 2] == 3);
          values[rank * 2] = static_cast<std::uint64_t>(rank) + 5;
          EXPECT(ncclAllReduce(memory + rank * 16, memory + 48, 1, ncclUint64, ncclMin,
                               self.communicator, self.stream) == ncclSuccess);
          self.wait();
          EXPECT(values[6] == 5);
          EXPECT(ncclAllReduce(memory, memory, 1, ncclFloat32, ncclSum, self.communicator,
                               self.stream) == ncclInvalidArgument);
        }) == Statuses(3, 0));
}

TEST_CASE("A peer that dies is an error of the others", "[simulated][nccl]") {
  CHECK(run_ranks(2, [](int rank, Shared& shared) {
          const Rank self(rank, 2, shared.id_for(rank));
          shared.arrive(2);
          if (rank == 1) raise(SIGKILL);
          start_swap(self, large);
          EXPECT(wait_for_error(self.communicator) == ncclRemoteError);
          EXPECT(cudaStreamQuery(self.stream) == cudaErrorNotReady);
          EXPECT(ncclCommDestroy(self.communicator) == ncclRemoteError);
          EXPECT(ncclCommAbort(self.communicator) == ncclSuccess);
          self.wait();
          EXPECT(simulated_gpu::live_communicators() == 0);
        }) == Statuses({0, -SIGKILL}));
}

TEST_CASE("A peer that is stopped is no error, and an abort ends the waiting",
          "[simulated][nccl]") {
  Shared& shared = make_shared_memory();
  const auto children = start_ranks(2, shared, [](int rank, Shared& common) {
    const Rank self(rank, 2, common.id_for(rank));
    common.arrive(2);
    if (rank == 1) raise(SIGSTOP);
    start_swap(self, large);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT(settled(self.communicator) == ncclSuccess);
    EXPECT(cudaStreamQuery(self.stream) == cudaErrorNotReady);
    EXPECT(ncclCommAbort(self.communicator) == ncclSuccess);
    self.wait();
  });
  CHECK(end_of(children[0]) == 0);
  kill(children[1], SIGKILL);
  CHECK(end_of(children[1]) == -SIGKILL);
}

TEST_CASE("An abort ends the making of a communicator", "[simulated][nccl]") {
  CHECK(run_ranks(1, [](int rank, Shared& shared) {
          const ncclUniqueId& id = shared.id_for(rank);
          ncclComm_t communicator = nullptr;
          ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
          config.blocking = 0;
          EXPECT(ncclCommInitRankConfig(&communicator, 2, id, 0, &config) == ncclInProgress);
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          EXPECT(ncclCommAbort(communicator) == ncclSuccess);
          EXPECT(!std::filesystem::exists(id.internal));
        }) == Statuses(1, 0));
}

TEST_CASE("Two ranks of one host cannot share a GPU", "[simulated][nccl]") {
  CHECK(run_ranks(2, [](int rank, Shared& shared) {
          setenv("NCCL_HOSTID", "the same", 1);
          ncclComm_t communicator = nullptr;
          EXPECT(ncclCommInitRank(&communicator, 2, shared.id_for(rank), rank) == ncclInvalidUsage);
          EXPECT(communicator == nullptr);
          EXPECT(std::string(ncclGetLastError(nullptr)).find("Duplicate GPU") != std::string::npos);
        }) == Statuses(2, 0));
}

TEST_CASE("Ranks that do not do the same break a rule", "[simulated][nccl]") {
  CHECK(run_ranks(2, [](int rank, Shared& shared) {
          const Rank self(rank, 2, shared.id_for(rank));
          // Rank 0 expects 100 bytes and gets 99.
          start_swap(self, rank == 0 ? 50 : 99, rank == 0 ? 100 : 50);
          if (rank == 0) EXPECT(wait_for_error(self.communicator) == ncclInvalidUsage);
          shared.arrive(2);
          EXPECT(ncclCommAbort(self.communicator) == ncclSuccess);
        }) == Statuses({broke_a_rule, 0}));
}

TEST_CASE("Allocating while NCCL is in flight breaks a rule", "[simulated][nccl]") {
  using Act = void (*)(std::byte*, std::byte*);
  const std::array<Act, 5> acts{
      [](std::byte*, std::byte*) { device_memory(1); },
      [](std::byte* memory, std::byte*) { cudaFree(memory); },
      [](std::byte*, std::byte*) {
        void* pinned = nullptr;
        cudaHostAlloc(&pinned, 1, cudaHostAllocDefault);
      },
      [](std::byte*, std::byte* pinned) { cudaFreeHost(pinned); },
      [](std::byte* memory, std::byte*) {  // the first launch of a kernel loads it
        simulated_gpu::register_kernel("add_to_bytes", {8, 8, 1}, [](void**, dim3, dim3) {});
        launch_add(memory, 1, 0, nullptr);
      },
  };
  for (const Act act : acts) {
    CHECK(run_ranks(2, [act](int rank, Shared& shared) {
            const Rank self(rank, 2, shared.id_for(rank));
            std::byte* const memory = device_memory(1);
            void* pinned = nullptr;
            EXPECT(cudaMallocHost(&pinned, 1) == cudaSuccess);
            if (rank == 1) shared.arrive(2);
            start_swap(self, 16);
            if (rank == 0) {
              act(memory, static_cast<std::byte*>(pinned));
              shared.arrive(2);
            }
            self.wait();
            device_memory(1);  // no longer in flight
            EXPECT(simulated_gpu::violations().size() == (rank == 0 ? 1 : 0));
          }) == Statuses({broke_a_rule, 0}));
  }
}

TEST_CASE("A group with an invalid call fails and launches nothing", "[simulated][nccl]") {
  CHECK(run_ranks(1, [](int rank, Shared& shared) {
          const Rank self(rank, 1, shared.id_for(rank));
          std::byte* const memory = device_memory(16);
          EXPECT(ncclGroupStart() == ncclSuccess);
          EXPECT(ncclSend(memory, 16, ncclInt8, 0, self.communicator, self.stream) == ncclSuccess);
          EXPECT(ncclRecv(memory, 16, ncclInt8, 1, self.communicator, self.stream) ==
                 ncclInvalidArgument);
          EXPECT(ncclGroupEnd() == ncclInvalidArgument);
          EXPECT(cudaStreamQuery(self.stream) == cudaSuccess);
          EXPECT(ncclGroupEnd() == ncclInvalidUsage);
          exchange_with_all(self);  // the next group is as good as ever
        }) == Statuses({0}));
}

TEST_CASE("NCCL wants device memory, and counts what is not aligned", "[simulated][nccl]") {
  const auto sends = [](auto pointer, std::size_t bytes, std::uint64_t unaligned = 0) {
    return run_ranks(1, [=](int rank, Shared& shared) {
      const Rank self(rank, 1, shared.id_for(rank));
      const std::byte* const source = pointer();
      std::byte* const target = device_memory(bytes);
      ncclGroupStart();
      ncclSend(source, bytes, ncclInt8, 0, self.communicator, self.stream);
      ncclRecv(target, bytes, ncclInt8, 0, self.communicator, self.stream);
      ncclGroupEnd();
      self.wait();
      EXPECT(simulated_gpu::unaligned_nccl_operations() == unaligned);
    });
  };
  static const std::array<std::byte, 64> host{};
  CHECK(sends([] { return host.data(); }, 16) == Statuses({broke_a_rule}));
  CHECK(sends([] { return device_memory(64) + 8; }, 16, 1) == Statuses({0}));
  CHECK(sends([] { return device_memory(64) + 8; }, 15) == Statuses({0}));
  CHECK(sends([] { return device_memory(64) + 16; }, 49) == Statuses({broke_a_rule}));
}

TEST_CASE("One group uses one stream", "[simulated][nccl]") {
  CHECK(run_ranks(1, [](int rank, Shared& shared) {
          const Rank self(rank, 1, shared.id_for(rank));
          std::byte* const memory = device_memory(32);
          ncclGroupStart();
          ncclSend(memory, 16, ncclInt8, 0, self.communicator, self.stream);
          ncclRecv(memory + 16, 16, ncclInt8, 0, self.communicator, nullptr);
          EXPECT(ncclGroupEnd() == ncclSuccess);
          self.wait();
        }) == Statuses({broke_a_rule}));
}

TEST_CASE("A communicator belongs to one thread at a time", "[simulated][nccl]") {
  CHECK(run_ranks(1, [](int rank, Shared& shared) {
          const Rank self(rank, 1, shared.id_for(rank));
          std::byte* const memory = device_memory(32);
          ncclGroupStart();
          ncclSend(memory, 16, ncclInt8, 0, self.communicator, self.stream);
          std::thread([&] {
            int count = 0;
            ncclCommCount(self.communicator, &count);
          }).join();
          EXPECT(simulated_gpu::violations().size() == 1);
          ncclRecv(memory + 16, 16, ncclInt8, 0, self.communicator, self.stream);
          EXPECT(ncclGroupEnd() == ncclSuccess);
          self.wait();
          std::thread([&] { exchange_with_all(self); }).join();  // one after the other is fine
          EXPECT(simulated_gpu::violations().size() == 1);
        }) == Statuses({broke_a_rule}));
}

TEST_CASE("Communicators that are gone cannot be used", "[simulated][nccl]") {
  CHECK(run_ranks(1, [](int rank, Shared& shared) {
          const Rank self(rank, 1, shared.id_for(rank));
          EXPECT(ncclCommDestroy(self.communicator) == ncclSuccess);
          EXPECT(ncclCommAbort(self.communicator) == ncclInvalidArgument);
        }) == Statuses({broke_a_rule}));
}

}  // namespace
