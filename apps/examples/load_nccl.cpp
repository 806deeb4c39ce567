// Loads a checkpoint in processes that have NCCL and no MPI, as inference engines do: forks one
// process per rank, each makes the communicator that the engine would have, and lends it to the
// library.
//   example_load_nccl CHECKPOINT RANKS
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <new>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <safeshuffle/loader.hpp>
#include <safeshuffle/nccl.hpp>

namespace {

/// Memory that all ranks share: rank 0 tells the others the communicator's id.
struct Meeting {
  std::atomic<bool> ready{false};
  ncclUniqueId id{};
};

void check(cudaError_t code) {
  if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}

void check(ncclResult_t code) {
  if (code != ncclSuccess) throw std::runtime_error(ncclGetErrorString(code));
}

void take_gpu(int rank, int ranks) {
  int gpus = 0;
  check(cudaGetDeviceCount(&gpus));
  if (gpus == 0) throw std::runtime_error("no GPU is visible");
  // To try it out with fewer GPUs: NCCL lets ranks share one only if they seem to be on several
  // hosts.
  if (gpus < ranks) setenv("NCCL_HOSTID", ("rank" + std::to_string(rank)).c_str(), 1);
  check(cudaSetDevice(rank % gpus));
}

ncclComm_t make_communicator(Meeting& meeting, int rank, int ranks) {
  if (rank == 0) {
    check(ncclGetUniqueId(&meeting.id));
    meeting.ready = true;
  }
  while (!meeting.ready) std::this_thread::yield();
  ncclComm_t comm = nullptr;
  check(ncclCommInitRank(&comm, ranks, meeting.id, rank));
  return comm;
}

void load_and_list(const char* path, ncclComm_t comm, cudaStream_t stream) {
  const auto group = safeshuffle::borrow(comm, stream);
  const auto model = safeshuffle::load(path, group);
  if (group.rank() != 0) return;
  for (const auto& tensor : model) {
    std::cout << tensor.name << ' ' << name(tensor.dtype) << ' ' << tensor.bytes << " bytes at "
              << static_cast<const void*>(tensor.data) << '\n';
  }
}

int run(const char* path, Meeting& meeting, int rank, int ranks) try {
  take_gpu(rank, ranks);
  const ncclComm_t comm = make_communicator(meeting, rank, ranks);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  load_and_list(path, comm, stream);
  check(cudaStreamDestroy(stream));
  check(ncclCommDestroy(comm));  // borrowed, so still ours
  return 0;
} catch (const safeshuffle::Error& error) {  // the same on every rank
  if (rank == 0) std::cerr << error.what() << '\n';
  return static_cast<int>(error.kind());
} catch (const std::exception& error) {
  std::cerr << "rank " << rank << ": " << error.what() << '\n';
  return 1;
}

/// The first exit status that is not 0; the ranks that are left are then ended, since they may wait
/// for one that is gone.
int wait_for_ranks(int ranks) {
  for (int i = 0; i < ranks; ++i) {
    int status = 0;
    wait(&status);
    if (status == 0) continue;
    kill(0, SIGTERM);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc == 3 ? std::atoi(argv[2]) : 0;
  if (ranks < 1) {
    std::cerr << "usage: example_load_nccl CHECKPOINT RANKS\n";
    return 2;
  }
  setpgid(0, 0);             // so that all ranks can be ended together
  signal(SIGTERM, SIG_IGN);  // but not this process
  void* const shared =
      mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& meeting = *new (shared) Meeting;
  for (int rank = 0; rank < ranks; ++rank) {
    // Before any use of CUDA, which does not survive a fork.
    if (fork() == 0) {
      signal(SIGTERM, SIG_DFL);
      std::exit(run(argv[1], meeting, rank, ranks));
    }
  }
  return wait_for_ranks(ranks);
}
