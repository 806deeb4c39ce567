// Loads a checkpoint in processes that use NCCL without MPI, as inference engines do: forks one
// process per rank, each of which creates a communicator, as the engine would, and lends it to the
// library.
//   example_load_nccl CHECKPOINT RANKS
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

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
  // To try it with fewer GPUs: NCCL lets ranks share one only if they seem to be on different
  // hosts.
  if (gpus < ranks) setenv("NCCL_HOSTID", ("rank" + std::to_string(rank)).c_str(), 1);
  check(cudaSetDevice(rank % gpus));
}

ncclComm_t make_communicator(Meeting& meeting, int rank, int ranks) {
  if (rank == 0) {
    check(ncclGetUniqueId(&meeting.id));
    meeting.ready = true;
  }
  while (!meeting.ready) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ncclComm_t comm = nullptr;
  check(ncclCommInitRank(&comm, ranks, meeting.id, rank));
  return comm;
}

/// This is all that an engine has to add.
void load_and_list(const char* path, ncclComm_t comm, cudaStream_t stream) {
  const auto group = safeshuffle::borrow(comm, stream);
  const auto model = safeshuffle::load(path, group);
  if (group.rank() != 0) return;
  for (const auto& tensor : model) {
    std::cout << tensor.name << ' ' << name(tensor.dtype) << ' ' << tensor.bytes << " bytes at "
              << static_cast<const void*>(tensor.data) << '\n';
  }
}

/// What the engine does anyway. A borrowed communicator is still ours to destroy or, after an
/// error, to abort, which also ends operations that still wait for another rank.
void run_engine(const char* path, Meeting& meeting, int rank, int ranks) {
  take_gpu(rank, ranks);
  const ncclComm_t comm = make_communicator(meeting, rank, ranks);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  try {
    load_and_list(path, comm, stream);
  } catch (...) {
    ncclCommAbort(comm);
    throw;
  }
  check(ncclCommDestroy(comm));
  check(cudaStreamDestroy(stream));
}

/// The exit status of a rank.
int run(const char* path, Meeting& meeting, int rank, int ranks) try {
  run_engine(path, meeting, rank, ranks);
  return 0;
} catch (const safeshuffle::Error& error) {
  if (rank == 0 || !is_common(error.kind())) std::cerr << error.what() << '\n';
  return static_cast<int>(error.kind());
} catch (const std::exception& error) {
  std::cerr << "rank " << rank << ": " << error.what() << '\n';
  return 1;
}

/// A process of its own. Forked before any use of CUDA, which does not survive a fork.
pid_t start(const char* path, Meeting& meeting, int rank, int ranks) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // no rank outlives this program
  std::exit(run(path, meeting, rank, ranks));
}

/// Waits until a rank ends and removes it from `ranks`; returns its exit status.
int wait_for_one(std::set<pid_t>& ranks) {
  int status = 0;
  ranks.erase(wait(&status));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/// Kills the ranks that have not ended by themselves after some time.
void end_all(std::set<pid_t>& ranks) {
  for (int tries = 0; tries < 500 && !ranks.empty(); ++tries) {
    const pid_t ended = waitpid(-1, nullptr, WNOHANG);
    if (ended == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ranks.erase(ended);
  }
  for (const pid_t rank : ranks) kill(rank, SIGKILL);
  while (!ranks.empty()) wait_for_one(ranks);
}

/// Returns the first exit status that is not 0. The other ranks then get some time to fail and
/// report it, but no more: they may be waiting for the one that ended, and NCCL waits without
/// limit.
int wait_for_all(std::set<pid_t> ranks) {
  int status = 0;
  while (status == 0 && !ranks.empty()) status = wait_for_one(ranks);
  end_all(ranks);
  return status;
}

/// Memory that stays shared after a fork.
Meeting& make_meeting() {
  void* const shared =
      mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw std::bad_alloc();
  return *new (shared) Meeting;
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc == 3 ? std::atoi(argv[2]) : 0;
  if (ranks < 1) {
    std::cerr << "usage: example_load_nccl CHECKPOINT RANKS\n";
    return 2;
  }
  Meeting& meeting = make_meeting();
  std::set<pid_t> started;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = start(argv[1], meeting, rank, ranks);
    if (child == -1) {
      std::cerr << "rank " << rank << " cannot be started\n";
      return 1;  // the ranks that were started end with this process
    }
    started.insert(child);
  }
  return wait_for_all(std::move(started));
}
