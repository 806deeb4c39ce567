// Loads a checkpoint in processes that use NCCL without MPI, as inference engines do: each creates
// a communicator, as the engine would, and lends it to the library.
//   RANK=0 WORLD_SIZE=2 example_load_nccl CHECKPOINT ID_FILE &
//   RANK=1 WORLD_SIZE=2 example_load_nccl CHECKPOINT ID_FILE
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>

#include <safeshuffle/loader.hpp>
#include <safeshuffle/nccl.hpp>

namespace {

void check(cudaError_t code) {
  if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}

void check(ncclResult_t code) {
  if (code != ncclSuccess) throw std::runtime_error(ncclGetErrorString(code));
}

void take_gpu(int rank) {
  int gpus = 0;
  check(cudaGetDeviceCount(&gpus));
  if (gpus == 0) throw std::runtime_error("no GPU is visible");
  check(cudaSetDevice(rank % gpus));
}

/// Rank 0 passes the id of the communicator on in a file, which appears complete; the others wait
/// for it.
ncclUniqueId share_id(const std::string& file, int rank) {
  ncclUniqueId id{};
  if (rank == 0) {
    check(ncclGetUniqueId(&id));
    const std::string unfinished = file + ".new";
    std::ofstream(unfinished, std::ios::binary).write(id.internal, sizeof id.internal);
    std::filesystem::rename(unfinished, file);
    return id;
  }
  while (!std::ifstream(file, std::ios::binary).read(id.internal, sizeof id.internal)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return id;
}

ncclComm_t make_communicator(const std::string& id_file, int rank, int ranks) {
  const ncclUniqueId id = share_id(id_file, rank);
  ncclComm_t comm = nullptr;
  check(ncclCommInitRank(&comm, ranks, id, rank));
  if (rank == 0) std::filesystem::remove(id_file);  // all have read it
  return comm;
}

/// This is all that an engine has to add.
void load_and_list(const char* path, ncclComm_t comm, cudaStream_t stream) {
  const auto group = safeshuffle::borrow(comm, stream);
  const safeshuffle::Options options;
  const auto model = safeshuffle::load(path, group, options);
  if (group.rank() != 0) return;
  for (const auto& tensor : model) {
    std::cout << tensor.name << ' ' << name(tensor.dtype) << ' ' << tensor.bytes << " bytes at "
              << static_cast<const void*>(tensor.data) << '\n';
  }
}

/// What the engine does anyway. A borrowed communicator is still ours to destroy or, after an
/// error, to abort, which also ends operations that still wait for another rank.
void run_engine(const char* path, const char* id_file, int rank, int ranks) {
  take_gpu(rank);
  const ncclComm_t comm = make_communicator(id_file, rank, ranks);
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

/// The exit status of this rank.
int run(const char* path, const char* id_file, int rank, int ranks) try {
  run_engine(path, id_file, rank, ranks);
  return 0;
} catch (const safeshuffle::Error& error) {
  if (rank == 0 || !is_common(error.kind())) std::cerr << error.what() << '\n';
  return static_cast<int>(error.kind());
} catch (const std::exception& error) {
  std::cerr << "rank " << rank << ": " << error.what() << '\n';
  return 1;
}

int number(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? -1 : std::atoi(text);
}

}  // namespace

int main(int argc, char** argv) {
  const int rank = number("RANK");
  const int ranks = number("WORLD_SIZE");
  if (argc != 3 || rank < 0 || rank >= ranks) {
    std::cerr << "usage: RANK=R WORLD_SIZE=N example_load_nccl CHECKPOINT ID_FILE\n";
    return 2;
  }
  return run(argv[1], argv[2], rank, ranks);
}
