// A program outside the project: writes a one-tensor file, loads it and compares every byte.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>

#include <safeshuffle/error.hpp>
#include <safeshuffle/loader.hpp>
#ifdef CONSUMER_HAS_MPI
#include <safeshuffle/mpi.hpp>

// That it says so shows that MPI was found.
bool is_told_to_initialise_mpi() {
  try {
    safeshuffle::from_mpi(MPI_COMM_WORLD);
  } catch (const safeshuffle::ConfigError& error) {
    if (error.record().cause == "MPI is not initialised") return true;
    std::cerr << error.what() << '\n';
  }
  return false;
}
#else
bool is_told_to_initialise_mpi() {
  return true;
}
#endif
#ifdef CONSUMER_HAS_NCCL
#include <safeshuffle/nccl.hpp>

// Not called: that it links is what is tested.
safeshuffle::Communicator borrowed(ncclComm_t comm) {
  return safeshuffle::borrow(comm);
}
#endif

namespace {

constexpr std::array<float, 4> values{1.0F, -2.5F, 0.0F, 3.0F};

void write_checkpoint(const char* path) {
  const std::string header = R"({"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})";
  std::ofstream file(path, std::ios::binary);
  for (std::uint64_t length = header.size(), i = 0; i < 8; ++i, length >>= 8) {
    file.put(static_cast<char>(length & 0xff));
  }
  file << header;
  file.write(reinterpret_cast<const char*>(values.data()), sizeof values);
}

bool load_and_compare(const char* path) {
  safeshuffle::Options options;
  options.tp_plan = "replicate";
  const auto model = safeshuffle::load(path, safeshuffle::self(), options);
  const auto& tensor = model.at("w");
  return tensor.bytes == sizeof values &&
         std::memcmp(tensor.data, values.data(), sizeof values) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  write_checkpoint(argv[1]);
  if (!is_told_to_initialise_mpi()) return 1;
  if (load_and_compare(argv[1])) return 0;
  std::cerr << "the loaded bytes differ from the file\n";
  return 1;
}
