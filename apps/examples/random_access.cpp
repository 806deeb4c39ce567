// Single tensors of an opened checkpoint, on demand, on all ranks or where they are needed.
//   mpirun -np 2 example_random_access CHECKPOINT
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include <safeshuffle/session.hpp>

#include "mpi_program.hpp"

/// One line, so that those of all ranks do not mix: shape and sum of all bytes.
void show(const char* what, const safeshuffle::TensorSet& loaded) {
  std::ostringstream line;
  line << "rank " << loaded.rank() << ": " << what;
  for (const auto& tensor : loaded) {
    std::vector<std::byte> bytes(tensor.bytes);
    loaded.copy_to_host(tensor, bytes);
    const auto add = [](std::uint64_t sum, std::byte byte) {
      return sum + std::to_integer<unsigned>(byte);
    };
    line << ' ' << tensor.name << " [ ";
    for (const auto extent : tensor.shape) line << extent << ' ';
    line << "] sum " << std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0}, add);
  }
  std::cout << line.str() + '\n' << std::flush;
}

void access(const safeshuffle::Communicator& comm, int /*argc*/, char** argv) {
  safeshuffle::Session session(argv[1], comm);  // reads headers only
  const std::string embedding = "model.embed_tokens.weight";
  const std::string layer = "model.layers.0.mlp.";

  show("whole", session.get_tensor("model.norm.weight"));
  show("own rows", session.get_sharded(embedding, 0));
  show("own columns", session.get_sharded(layer + "down_proj.weight", 1));
  show("slice", session.get_slice(embedding, {{5, 3}, {2, 4}}));  // 3 rows, 4 columns
  show("last rank only", session.push("lm_head.weight", comm.size() - 1));
  show("joined", session.get_columns({layer + "gate_proj.weight", layer + "up_proj.weight"}, 0));
}

int main(int argc, char** argv) {
  return run_with_mpi(access, safeshuffle::Device::automatic(), argc, argv);
}
