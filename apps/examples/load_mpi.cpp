// Loads a checkpoint into all ranks of MPI_COMM_WORLD, into GPUs where each rank has one, and lists
// what rank 0 holds.
//   mpirun -np 4 example_load_mpi CHECKPOINT
#include <iostream>

#include <safeshuffle/loader.hpp>

#include "mpi_program.hpp"

void print(const safeshuffle::TensorView& tensor) {
  std::cout << tensor.name << ' ' << name(tensor.dtype) << " [ ";
  for (const auto extent : tensor.shape) std::cout << extent << ' ';
  std::cout << "] " << tensor.bytes << " bytes\n";
}

void load_and_list(const safeshuffle::Communicator& comm, int /*argc*/, char** argv) {
  const auto model = safeshuffle::load(argv[1], comm);
  if (comm.rank() != 0) return;
  std::cout << comm.size() << " ranks on " << name(comm.device()) << ", over "
            << comm.transport_name() << '\n';
  for (const auto& tensor : model) print(tensor);
}

int main(int argc, char** argv) {
  return run_with_mpi(load_and_list, safeshuffle::Device::automatic(), argc, argv);
}
