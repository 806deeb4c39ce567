// Loads from a source that is no filesystem.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "output/verify.hpp"
#include "pipeline/open_session.hpp"
#include "source/files.hpp"
#include "support/catch.hpp"
#include "support/failure.hpp"
#include "support/group.hpp"
#include "support/memory_source.hpp"
#include "support/sanitizers.hpp"
#include "support/shared_model.hpp"
#include "support/wrapped_files.hpp"

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

bool are_equal(const TensorSet& a, const TensorSet& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const TensorView& mine, const TensorView& other) {
                      return mine.name == other.name && mine.dtype == other.dtype &&
                             loaded_bytes(a, mine) == loaded_bytes(b, other);
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

  pipeline::OpenSession session(
      std::make_shared<pipeline::Workspace>(borrowed(memory), comm, options), {model.path()});
  const TensorSet loaded = session.plan({})->run();
  output::verify(memory, loaded, comm, options);
  std::string file = source::read_text(memory, model_file(model.path(), 0), largest_file);
  file.back() ^= 1;
  memory.put(model_file(model.path(), 0), file);
  std::optional<ErrorRecord> wrong;
  try {
    output::verify(memory, loaded, comm, options);
  } catch (const VerificationError& error) {
    wrong = error.record();
  }
  CHECK(are_equal(loaded, expected));
  REQUIRE(wrong);
  CHECK(wrong->file == model_file(model.path(), 0));
}

namespace {

/// Files that the page cache is said to have. The first that is read after `change_next` is set is
/// changed just before.
class ChangingFiles final : public WrappedFiles {
 public:
  std::unique_ptr<source::Handle> open(const std::string& path,
                                       source::Access access) const override {
    return std::make_unique<Changing>(*this, path, files_.open(path, access));
  }

  std::function<void(const std::string&)> change;
  mutable std::atomic<bool> change_next{false};

 private:
  class Changing final : public source::Handle {
   public:
    Changing(const ChangingFiles& files, std::string path, std::unique_ptr<source::Handle> file)
        : files_(files), path_(std::move(path)), file_(std::move(file)) {}

    const core::FileIdentity& identity() const noexcept override { return file_->identity(); }
    bool is_local() const noexcept override { return true; }
    std::optional<std::uint64_t> cached_bytes(std::uint64_t, std::uint64_t bytes) const override {
      return bytes;
    }
    std::size_t read_some(std::uint64_t offset, std::span<std::byte> to) const override {
      if (files_.change_next.exchange(false)) files_.change(path_);
      return file_->read_some(offset, to);
    }

   private:
    const ChangingFiles& files_;
    const std::string path_;
    const std::unique_ptr<source::Handle> file_;
  };
};

}  // namespace

TEST_CASE("a cached file that changes while it is packed is an error on all ranks",
          "[load][host]") {
  const SharedModel model(plain_model(3));
  const Communicator& comm = shared_group();
  ChangingFiles files;
  std::string cause;
  SECTION("it shrinks") {
    files.change = [](const std::string& path) { std::filesystem::resize_file(path, 300); };
  }
  SECTION("it is written to") {
    files.change = [](const std::string& path) {
      std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now());
    };
    cause = "file changed since its header was read";
  }
  const auto job = pipeline::planned_load(borrowed(files), model.plan(), comm, {});
  files.change_next = world_rank() == 0;
  const auto error = common_error([&] { job->run(); });
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::io);
  CHECK(error->rank == 0);
  CHECK(error->file == model_file(model.path(), 0));
  if (!cause.empty()) CHECK(error->cause == cause);
}

TEST_CASE("an object replaced between header and data is an error on all ranks", "[load]") {
  const SharedModel model(plain_model(3));
  const Communicator& comm = shared_group();
  MemorySource memory = in_memory(model.path());
  Options options;
  options.tp_plan = "replicate";
  options.plan = exchanging();  // whoever read a file's header reads its data
  pipeline::OpenSession session(
      std::make_shared<pipeline::Workspace>(borrowed(memory), comm, options), {model.path()});
  const auto job = session.plan({});
  // The same size and time: only the identity tells.
  const std::string path = model_file(model.path(), 0);
  memory.put(path, source::read_text(memory, path, largest_file));
  std::optional<ErrorRecord> error;
  try {
    static_cast<void>(job->run());
  } catch (const IoError& caught) {
    error = caught.record();
  }
  REQUIRE(error);
  CHECK(error->file == path);
  CHECK(error->cause == "file changed since its header was read");
}

namespace {

/// Files of which one range does not arrive until `release`.
class HangingFiles final : public WrappedFiles {
 public:
  HangingFiles(std::string path, std::uint64_t begin, std::uint64_t end)
      : path_(std::move(path)), begin_(begin), end_(end) {}

  std::unique_ptr<source::Handle> open(const std::string& path,
                                       source::Access access) const override {
    auto file = files_.open(path, access);
    if (path != path_) return file;
    return std::make_unique<Hanging>(*this, std::move(file));
  }

  void release() const { gate_.set_value(); }

 private:
  class Hanging final : public source::Handle {
   public:
    Hanging(const HangingFiles& files, std::unique_ptr<source::Handle> file)
        : files_(files), file_(std::move(file)) {}

    const core::FileIdentity& identity() const noexcept override { return file_->identity(); }
    std::size_t read_some(std::uint64_t offset, std::span<std::byte> to) const override {
      if (offset >= files_.begin_ && offset < files_.end_) files_.released_.wait();
      return file_->read_some(offset, to);
    }

   private:
    const HangingFiles& files_;
    const std::unique_ptr<source::Handle> file_;
  };

  const std::string path_;
  const std::uint64_t begin_;
  const std::uint64_t end_;
  mutable std::promise<void> gate_;
  std::shared_future<void> released_ = gate_.get_future().share();
};

}  // namespace

TEST_CASE("after another rank's error, a read ahead that hangs does not keep the load", "[load]") {
  if (world_size() == 1 || SAFESHUFFLE_ASAN) return;  // what is left to the thread is a leak
  constexpr std::uint64_t window = 4096;
  const SharedModel model(plain_model(world_size()));
  const Plan plan = model.plan(with_window(window));
  // Rank 0's second wave; the third is dropped.
  const std::uint64_t second = model.catalog.find("cut0")->file_offset + window;
  // Never freed: the load leaves it to the thread that hangs.
  static const HangingFiles* files = nullptr;
  files = new HangingFiles(model_file(model.path(), 0), second, second + window);
  const std::string replaced = model_file(model.path(), world_size() - 1);
  model.directory.fill([&] { std::filesystem::resize_file(replaced, 5000); });
  Options options;
  options.timeout = std::chrono::seconds(5);
  options.threads = 2;  // one hangs
  const Communicator& comm = shared_group();
  const auto error =
      common_error([&] { pipeline::planned_load(borrowed(*files), plan, comm, options)->run(); });
  files->release();
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::io);
  CHECK(error->rank == static_cast<std::int32_t>(world_size() - 1));
}
