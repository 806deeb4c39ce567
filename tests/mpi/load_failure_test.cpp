// Loads that fail: all ranks throw the same error.
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <unistd.h>

#include "safeshuffle/loader.hpp"

#include "comm/exchange/transport.hpp"
#include "support/catch.hpp"
#include "support/group.hpp"
#include "support/shared_model.hpp"
#include "support/variable.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

/// The last rank, or none.
std::int32_t last_rank() {
  return static_cast<std::int32_t>(world_size()) - 1;
}

/// Changes one byte in the middle of a file's data, keeping its size.
void spoil(const Catalog& catalog, const TensorInfo& tensor, std::uint64_t offset) {
  std::fstream file(catalog.files()[tensor.file].path,
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(tensor.file_offset + offset));
  const int old = file.get();
  file.seekp(static_cast<std::streamoff>(tensor.file_offset + offset));
  file.put(static_cast<char>(old ^ 1));
}

/// Bytes that this process has read from files, /proc among them, and sockets.
std::uint64_t bytes_read() {
  std::ifstream counters("/proc/self/io");
  std::string name;
  std::uint64_t bytes = 0;
  counters >> name >> bytes;
  return name == "rchar:" ? bytes : 0;
}

/// Whether files in memory can be read past the page cache, as newer kernels allow.
bool direct_in_memory(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (descriptor >= 0) ::close(descriptor);
  return descriptor >= 0;
}

}  // namespace

TEST_CASE("options out of range on one rank are a ConfigError on all", "[load]") {
  const SharedModel model(plain_model(2));
  const Communicator& comm = shared_group();
  const std::vector<std::function<void(Options&)>> mistakes{
      [](Options& options) { options.threads = 5000; },
      [](Options& options) { options.chunk = 100; },
      [](Options& options) { options.timeout = std::chrono::milliseconds(0); },
      [](Options& options) { options.plan.window = 100; }};
  for (const auto& mistake : mistakes) {
    Options options = replicated();
    if (is_last_rank()) mistake(options);
    const auto error = common_error([&] { load(model.path(), comm, options); });
    REQUIRE(error);
    CHECK(error->kind == ErrorKind::config);
    CHECK(error->rank == last_rank());
  }
}

TEST_CASE("different plans on the ranks are a PlanError on all", "[load]") {
  if (world_size() == 1) return;
  const SharedModel model(plain_model(2));
  const Communicator& comm = shared_group();
  Options options = replicated();
  if (is_last_rank()) options.plan.window = 8192;
  const auto error = common_error([&] { load(model.path(), comm, options); });
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::plan);
  CHECK(error->rank == last_rank());
}

TEST_CASE("a plan for another number of ranks is a ConfigError", "[load]") {
  const SharedModel model(plain_model(2));
  const Communicator& comm = shared_group();
  const Plan plan = make_plan(model.catalog, model.placements, world_size() + 1);
  const auto error = common_error([&] { load(plan, comm); });
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::config);
  CHECK(error->cause.find(std::to_string(world_size() + 1)) != std::string::npos);
}

TEST_CASE("a budget that holds nothing names the tensor on all ranks", "[load]") {
  const SharedModel model(plain_model(2));
  const Communicator& comm = shared_group();
  Options options = replicated();
  options.plan.memory_budget =
      comm.transport().device_bytes() + comm.device_handle()->packer_bytes() + 10'000;
  const auto error = common_error([&] { load(model.path(), comm, options); });
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::memory);
  CHECK_FALSE(error->tensor.empty());
}

TEST_CASE("a missing checkpoint is rank 0's IoError on all ranks", "[load]") {
  const SharedModel model(plain_model(1));
  const Communicator& comm = shared_group();
  const auto error = common_error([&] { load(model.path() + "/nothing", comm, replicated()); });
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::io);
  CHECK(error->rank == 0);
}

TEST_CASE("a malformed header is the same FormatError on all ranks, of the one that reads it",
          "[load]") {
  const std::uint32_t files = 2 * world_size();
  const SharedModel model(plain_model(files));
  const Communicator& comm = shared_group();
  for (std::uint32_t file = 0; file < files; ++file) {
    const std::string path = model_file(model.path(), file);
    const auto begin_header_with = [&](char byte) {
      model.directory.fill([&] {
        std::fstream bytes(path, std::ios::in | std::ios::out | std::ios::binary);
        bytes.seekp(8);
        bytes.put(byte);
      });
    };
    begin_header_with('!');
    const auto error = common_error([&] { load(model.path(), comm, replicated()); });
    begin_header_with('{');
    REQUIRE(error);
    CHECK(error->kind == ErrorKind::format);
    CHECK(error->file == path);
    CHECK(error->offset == 8);
    CHECK(error->rank == static_cast<std::int32_t>(file % world_size()));
  }
}

TEST_CASE("an index that disagrees with the headers is a FormatError on all ranks", "[load]") {
  const SharedModel model(plain_model(2));
  model.directory.fill([&] {
    const std::filesystem::path named = model_file(model.path(), 1);
    std::ofstream(model.path() + "/model.safetensors.index.json")
        << R"({"weight_map":{"absent":)" << named.filename() << "}}";
  });
  const auto error = common_error([&] { load(model.path(), shared_group(), replicated()); });
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::format);
  CHECK(error->tensor == "absent");
  CHECK(error->rank == 0);
}

TEST_CASE("a file replaced after planning is an IoError on all ranks", "[load]") {
  const SharedModel model(plain_model(3));
  const Communicator& comm = shared_group();
  const Plan plan = model.plan(with_window(4096));
  const std::string replaced = model_file(model.path(), 1);
  model.directory.fill([&] { std::filesystem::resize_file(replaced, 5000); });
  const auto error = common_error([&] { load(plan, comm); });
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::io);
  CHECK(error->file == replaced);
  CHECK(error->rank == static_cast<std::int32_t>(1 % world_size()));
}

TEST_CASE("after an error no rank reads on", "[load]") {
  constexpr std::uint64_t window = 4096;
  constexpr std::uint32_t files_per_rank = 20;
  const SharedModel model(plain_model(files_per_rank * world_size()));
  const Communicator& comm = shared_group();
  const Plan plan = model.plan(with_window(window));
  const std::string replaced = model_file(model.path(), world_size() - 1);  // of the last rank
  model.directory.fill([&] { std::filesystem::resize_file(replaced, 5000); });
  Options options;
  Progress last;
  options.on_progress = [&](const Progress& progress) { last = progress; };
  const std::uint64_t before = bytes_read();
  const auto error = common_error([&] { load(plan, comm, options); });
  const std::uint64_t read = bytes_read() - before;
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::io);
  CHECK(error->file == replaced);
  CHECK(error->rank == last_rank());
  // All stop after the first wave; the second may have been read ahead.
  REQUIRE(plan.waves() >= 10 * files_per_rank);
  CHECK(last.wave == 0);
  CHECK(read < 20 * window);
}

TEST_CASE("one rank that cannot read its slices ends the load of all", "[load]") {
  const SharedModel model(plain_model(20));
  const Communicator& comm = shared_group();
  PlanOptions options = with_window(4096);
  options.assignment = Assignment::sliced;
  std::vector<Placement> placements = model.placements;
  for (std::uint32_t i = 0; i < placements.size(); ++i) {  // the last rank alone reads two files
    const std::uint32_t file = model.catalog.tensors()[i].file;
    if (file < 2) placements[i] = testing::whole(Placement::Kind::single, world_size() - 1);
  }
  const Plan plan = make_plan(model.catalog, placements, world_size(), options);
  REQUIRE(plan.waves() > 40);
  const std::string replaced = model_file(model.path(), 1);
  const bool right = is_right(load(plan, comm), comm.rank());
  MPI_Barrier(MPI_COMM_WORLD);
  model.directory.fill([&] { std::filesystem::resize_file(replaced, 5000); });
  Options watched;
  Progress last;
  watched.on_progress = [&](const Progress& progress) { last = progress; };
  const auto error = common_error([&] { load(plan, comm, watched); });
  CHECK(right);
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::io);
  CHECK(error->file == replaced);
  CHECK(error->rank == last_rank());
  CHECK(last.wave < plan.waves() / 2);
}

TEST_CASE("what a progress callback throws on one rank, all ranks throw", "[load]") {
  const SharedModel model(plain_model(4));
  const Communicator& comm = shared_group();
  Options options;
  int calls = 0;
  std::uint64_t waves = 0;
  options.on_progress = [&](const Progress& progress) {
    ++calls;
    waves = progress.wave;
    if (is_last_rank()) throw std::runtime_error("cancelled");
  };
  const Plan plan = model.plan(with_window(4096));
  const auto error = common_error([&] { load(plan, comm, options); });
  const bool usable = is_right(load(plan, comm), comm.rank());
  REQUIRE(error);
  CHECK(waves <= 1);  // the others, too, stop with the wave that follows
  CHECK(error->kind == ErrorKind::internal);
  CHECK(error->cause == "cancelled");
  CHECK(error->rank == last_rank());
  if (is_last_rank()) CHECK(calls == 1);
  CHECK(usable);
}

TEST_CASE("a fallback under strict is an error, on all ranks", "[load]") {
  if (!std::filesystem::is_directory("/dev/shm")) return;
  const Variable directory("TMPDIR", "/dev/shm");
  const SharedModel model(plain_model(3));
  const Communicator& comm = shared_group();
  Options options;
  options.direct = DirectIo::on;
  options.strict = true;
  const auto error = common_error([&] { load(model.plan(), comm, options); });
  REQUIRE(error.has_value() == !direct_in_memory(model_file(model.path(), 0)));
  if (error) CHECK(error->kind == ErrorKind::fallback);
}

TEST_CASE("verification finds one wrong byte and names its element", "[load]") {
  const SharedModel model(plain_model(3));
  const Communicator& comm = shared_group();
  const TensorSet loaded = load(model.plan(), comm);
  const TensorInfo& cut = *model.catalog.find("cut1");  // F32, 80 rows of 128
  const std::uint64_t element = 79 * 128 + 5;
  model.directory.fill([&] { spoil(model.catalog, cut, element * 4 + 2); });
  const auto error = common_error([&] { verify(loaded, comm); });
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::verification);
  CHECK(error->tensor == "cut1");
  CHECK(error->file == model_file(model.path(), 1));
  CHECK(error->offset == cut.file_offset + element * 4);
  CHECK(error->cause.find("element " + std::to_string(element) + " ") != std::string::npos);
  // Whoever holds row 79.
  const std::uint32_t share = (80 + world_size() - 1) / world_size();
  CHECK(error->rank == static_cast<std::int32_t>(79 / share));
}

TEST_CASE("a directory that cannot be made is an IoError of saving", "[load]") {
  const SharedModel model(plain_model(1));
  const Communicator& comm = shared_group();
  const TensorSet loaded = load(model.plan(), comm);
  const std::string inside_a_file = model_file(model.path(), 0) + "/saved";
  const auto error = common_error([&] { save_sharded(loaded, inside_a_file, comm); });
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::io);
  CHECK(error->rank == 0);
}

TEST_CASE("shards are not saved where they would be loaded as part of something else", "[load]") {
  const SharedModel model(plain_model(2));
  const Communicator& comm = shared_group();
  const TensorSet loaded = load(model.path(), comm, replicated());

  const auto beside_source = common_error([&] { save_sharded(loaded, model.path(), comm); });
  REQUIRE(beside_source);
  CHECK(beside_source->kind == ErrorKind::config);
  CHECK(beside_source->file == model.path());

  const SharedDirectory saved;
  const std::string stale =
      testing::numbered(saved.path() + "/model-rank-", world_size()) + "-part-0.safetensors";
  saved.fill([&] { std::ofstream(stale) << "of a larger group"; });
  const auto larger_group = common_error([&] { save_sharded(loaded, saved.path(), comm); });
  REQUIRE(larger_group);
  CHECK(larger_group->kind == ErrorKind::config);
  CHECK(larger_group->file == stale);
}

TEST_CASE("a model is verified and saved by the group that loaded it, or not at all", "[load]") {
  const SharedModel model(plain_model(2));
  const TensorSet loaded = load(model.path(), shared_group(), replicated());
  if (world_size() == 1) return;
  CHECK_THROWS_AS(verify(loaded, self()), ConfigError);
  CHECK_THROWS_AS(save_sharded(loaded, model.directory / "saved", self()), ConfigError);
}

TEST_CASE("a tensor that changed its type since it was loaded is found by verification", "[load]") {
  const SharedModel model(plain_model(1));
  const Communicator& comm = shared_group();
  Options half = replicated();
  half.plan.dtype = DTypePolicy::f16;
  const TensorSet loaded = load(model.path(), comm, half);
  const Catalog other =
      testing::make_catalog({{{"cut0", DType::I32, {80, 128}}, {"whole0", DType::BF16, {4096}}}});
  model.directory.fill([&] { write_model(model.path(), other, 1); });
  const auto error = common_error([&] { verify(loaded, comm, half); });
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::verification);
  CHECK(error->tensor == "cut0");
}
