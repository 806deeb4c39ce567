// Loads a checkpoint into all ranks of MPI_COMM_WORLD, into GPUs where each rank has one, and lists
// what rank 0 holds.
//   mpirun -np 4 example_load_mpi CHECKPOINT
#include <iostream>

#include <safeshuffle/loader.hpp>
#include <safeshuffle/mpi.hpp>

void print(const safeshuffle::TensorView& tensor) {
  std::cout << tensor.name << ' ' << name(tensor.dtype) << " [ ";
  for (const auto extent : tensor.shape) std::cout << extent << ' ';
  std::cout << "] " << tensor.bytes << " bytes\n";
}

// The exit status of this rank.
int run(const char* path, int rank) try {
  const auto comm = safeshuffle::from_mpi(MPI_COMM_WORLD, safeshuffle::Device::automatic());
  const auto model = safeshuffle::load(path, comm);
  if (rank == 0) {
    std::cout << comm.size() << " ranks on " << name(comm.device()) << ", over "
              << comm.transport_name() << '\n';
    for (const auto& tensor : model) print(tensor);
  }
  return 0;
} catch (const safeshuffle::Error& error) {
  const auto status = static_cast<int>(error.kind());
  if (is_common(error.kind())) {
    if (rank == 0) std::cerr << error.what() << '\n';
  } else {
    std::cerr << error.what() << '\n';
    MPI_Abort(MPI_COMM_WORLD, status);
  }
  return status;
}

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int status = argc == 2 ? run(argv[1], rank) : 2;
  MPI_Finalize();
  return status;
}
