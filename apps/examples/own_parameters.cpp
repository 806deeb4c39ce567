// An engine with parameters of its own: each rank has its rows of q, k and v in one matrix. It is
// filled twice, the second time as after a sleep in which its memory was given up.
//   mpirun -np 2 example_own_parameters CHECKPOINT
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <safeshuffle/session.hpp>

#include "mpi_program.hpp"

using safeshuffle::Parameter;

/// On a GPU, from cudaMalloc, or the storage of a tensor of PyTorch.
using Memory = std::vector<std::byte>;

std::uint64_t bytes(const Parameter& parameter) {
  return parameter.shape[0] * parameter.shape[1] * bits(parameter.dtype) / 8;
}

std::vector<Parameter> fused_qkv(const safeshuffle::Catalog& catalog, std::uint32_t ranks,
                                 Memory& memory) {
  std::vector<Parameter> parts;
  for (const std::string part : {"q", "k", "v"}) {
    const std::string name = "model.layers.0.self_attn." + part + "_proj.weight";
    const auto* stored = catalog.find(name);
    if (stored == nullptr) throw safeshuffle::ConfigError("the checkpoint has no " + name);
    const safeshuffle::Shape rows{stored->shape[0] / ranks, stored->shape[1]};
    parts.push_back({.name = name, .dtype = stored->dtype, .shape = rows});
    memory.resize(memory.size() + bytes(parts.back()));
  }
  std::byte* next = memory.data();
  for (Parameter& part : parts) next = (part.data = next) + bytes(part);
  return parts;
}

void serve(const safeshuffle::Communicator& comm, int /*argc*/, char** argv) {
  safeshuffle::Session session(argv[1], comm);
  for (const char* const when : {"at the start", "after a sleep"}) {
    const auto memory = std::make_shared<Memory>();  // shared, in case a failed load must keep it
    session.load_into(fused_qkv(session.catalog(), comm.size(), *memory), memory);
    const auto add = [](std::uint64_t sum, std::byte byte) {
      return sum + std::to_integer<unsigned>(byte);
    };
    const auto sum = std::accumulate(memory->begin(), memory->end(), std::uint64_t{0}, add);
    std::cout << "rank " + std::to_string(comm.rank()) + ", " + when + ": sum " +
                     std::to_string(sum) + '\n';
  }
}

int main(int argc, char** argv) {
  return run_with_mpi(serve, safeshuffle::Device::host(), argc, argv);
}
