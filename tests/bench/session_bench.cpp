// How long a session takes for one tensor on demand, beside a plain pread on one rank and a
// broadcast over MPI of the same bytes; and for a second load beside the first. All in turns; each
// rank writes as much memory before each. Prints milliseconds on the slowest rank, median
// (minimum-maximum). Usage: mpirun -np N session_bench MODEL TENSOR TURNS.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include <mpi.h>

#include "safeshuffle/mpi.hpp"
#include "safeshuffle/session.hpp"

#include "core/deadline.hpp"
#include "device/host/memory.hpp"
#include "source/files.hpp"

using namespace safeshuffle;

namespace {

double slowest_milliseconds(const std::function<void()>& work) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = core::Clock::now();
  work();
  double mine = core::seconds_since(start) * 1e3;
  double slowest = 0;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

struct Samples {
  const char* name;
  std::vector<double> milliseconds = {};

  void print() {
    std::ranges::sort(milliseconds);
    std::printf("%-20s %8.3f (%.3f-%.3f)\n", name, milliseconds[milliseconds.size() / 2],
                milliseconds.front(), milliseconds.back());
  }
};

// Memory that the host machine has taken back would otherwise be counted.
void touch(std::uint64_t bytes) {
  std::memset(device::allocate_pages(bytes).get(), 1, bytes);
}

void read_and_broadcast(const FileInfo& file, const TensorInfo& tensor, int rank) {
  const auto memory = device::allocate_pages(tensor.bytes);
  if (rank == 0) {
    const auto handle = source::files().open(file.path, source::Access::cached);
    source::read(*handle, file.path, tensor.file_offset, {memory.get(), tensor.bytes});
  }
  MPI_Bcast(memory.get(), static_cast<int>(tensor.bytes), MPI_BYTE, 0, MPI_COMM_WORLD);
}

void bench(const std::string& model, const std::string& name, int turns) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  Options options;
  options.tp_plan = "replicate";
  const Communicator comm = from_mpi(MPI_COMM_WORLD, Device::host());
  Session session(model, comm, options);
  const TensorInfo& tensor = *session.catalog().find(name);
  const FileInfo& file = session.catalog().files()[tensor.file];
  Samples plain{"pread + MPI_Bcast"};
  Samples demand{"get_tensor"};
  Samples first{"load, new session"};
  Samples second{"load, same session"};
  const Selection only{.only = {name}, .skip = {}};
  for (int turn = 0; turn <= turns; ++turn) {
    std::vector<double> taken;
    touch(4 * tensor.bytes);
    taken.push_back(slowest_milliseconds([&] { read_and_broadcast(file, tensor, rank); }));
    taken.push_back(slowest_milliseconds([&] { session.get_tensor(name); }));
    Session other(model, comm, options);
    taken.push_back(slowest_milliseconds([&] { other.load(only); }));
    taken.push_back(slowest_milliseconds([&] { other.load(only); }));
    if (turn == 0) continue;  // files are read for the first time
    Samples* const all[] = {&plain, &demand, &first, &second};
    for (std::size_t i = 0; i < taken.size(); ++i) all[i]->milliseconds.push_back(taken[i]);
  }
  if (rank != 0) return;
  for (Samples* samples : {&plain, &demand, &first, &second}) samples->print();
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) return 2;
  MPI_Init(&argc, &argv);
  bench(argv[1], argv[2], std::atoi(argv[3]));
  MPI_Finalize();
  return EXIT_SUCCESS;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return EXIT_FAILURE;
}
