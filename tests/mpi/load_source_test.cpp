// Loads from a source that is no filesystem.
#include <filesystem>
#include <optional>
#include <string>

#include "pipeline/load_job.hpp"
#include "pipeline/verify.hpp"
#include "source/files.hpp"
#include "support/catch.hpp"
#include "support/failure.hpp"
#include "support/group.hpp"
#include "support/memory_source.hpp"
#include "support/shared_model.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

constexpr std::uint64_t largest_file = 1 << 20;

/// The files in a directory, under the same paths.
MemorySource in_memory(const std::string& directory) {
  const source::Source& files = source::files();
  MemorySource memory;
  for (const std::string& name : files.names_in(directory)) {
    const std::string path = directory + "/" + name;
    memory.put(path, source::read_text(files, path, largest_file));
  }
  return memory;
}

std::vector<std::byte> bytes_of(const TensorSet& model, const TensorView& view) {
  std::vector<std::byte> bytes(view.bytes);
  model.copy_to_host(view, bytes);
  return bytes;
}

bool are_equal(const TensorSet& a, const TensorSet& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const TensorView& mine, const TensorView& other) {
                      return mine.name == other.name && mine.dtype == other.dtype &&
                             bytes_of(a, mine) == bytes_of(b, other);
                    });
}

}  // namespace

TEST_CASE("a source that is no filesystem is found, loaded and verified", "[load]") {
  const SharedModel model(plain_model(5));
  const Communicator& comm = shared_group();
  Options options;
  options.tp_plan = "replicate";
  const TensorSet expected = load(model.path(), comm, options);
  MemorySource memory = in_memory(model.path());
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 0) std::filesystem::remove_all(model.path());
  MPI_Barrier(MPI_COMM_WORLD);

  pipeline::LoadJob job(memory, {model.path()}, comm, options);
  const TensorSet loaded = job.run();
  pipeline::verify(memory, loaded, comm, options);
  std::string file = source::read_text(memory, model_file(model.path(), 0), largest_file);
  file.back() ^= 1;
  memory.put(model_file(model.path(), 0), file);
  std::optional<ErrorRecord> wrong;
  try {
    pipeline::verify(memory, loaded, comm, options);
  } catch (const VerificationError& error) {
    wrong = error.record();
  }
  CHECK(are_equal(loaded, expected));
  REQUIRE(wrong);
  CHECK(wrong->file == model_file(model.path(), 0));
}

TEST_CASE("an object replaced between header and data is an error on all ranks", "[load]") {
  const SharedModel model(plain_model(3));
  const Communicator& comm = shared_group();
  MemorySource memory = in_memory(model.path());
  Options options;
  options.tp_plan = "replicate";
  pipeline::LoadJob job(memory, {model.path()}, comm, options);
  // The same size and time: only the identity tells.
  const std::string path = model_file(model.path(), 0);
  memory.put(path, source::read_text(memory, path, largest_file));
  std::optional<ErrorRecord> error;
  try {
    static_cast<void>(job.run());
  } catch (const IoError& caught) {
    error = caught.record();
  }
  REQUIRE(error);
  CHECK(error->file == path);
  CHECK(error->cause == "file changed since its header was read");
}
