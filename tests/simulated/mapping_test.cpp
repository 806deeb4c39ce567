// Copies from mapped files to a simulated GPU: what is locked, and what if that is refused.
#include "safeshuffle/loader.hpp"

#include "contract/reader_contract.hpp"
#include "support/own_model.hpp"
#include "support/simulated_gpu/inspect.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

constexpr std::uint64_t file_size = 300'001;  // five chunks

/// A GPU that copies a file from where it is mapped, with one thread.
struct Bench {
  io::BatchStatus read_all() {
    const io::ReadRange range{0, 0, file_size, memory.data()};
    return wait_for(*reader, reader->submit({&range, 1}));
  }

  const ScratchDirectory directory;
  const FileInfo file = write_sample(directory.file("a"), 0, file_size);
  const std::shared_ptr<device::Device> device = device::open_device(Device::cuda());
  const DeviceMemory memory{*device, file_size};
  const std::unique_ptr<device::Staging> staging = device->make_staging(contract_chunk, 2);
  std::unique_ptr<io::Reader> reader = io::make_reader({.engine = IoEngine::mmap,
                                                        .direct = DirectIo::off,
                                                        .threads = 1,
                                                        .chunk = contract_chunk,
                                                        .locks_pages = true},
                                                       source::files(), {file}, *staging);
};

using simulated_gpu::Registration;

/// As long as this exists, no memory can be registered.
struct Refusing {
  explicit Refusing(Registration how) { simulated_gpu::set_registration(how); }
  ~Refusing() { simulated_gpu::set_registration(Registration::works); }
  Refusing(const Refusing&) = delete;
  Refusing& operator=(const Refusing&) = delete;
};

constexpr const char* refusal = "mmap copies through the pinned ring: cudaHostRegister: ";

Options mapping() {
  Options options;
  options.io = IoEngine::mmap;
  options.direct = DirectIo::off;
  return options;
}

}  // namespace

TEST_CASE("pages are locked to be copied, and unlocked again", "[mmap]") {
  Bench bench;
  const std::uint64_t pinned = simulated_gpu::pinned_bytes();
  const std::uint64_t before = simulated_gpu::registrations();
  CHECK_FALSE(bench.read_all().error);
  CHECK(is_sample(bench.memory.contents(), 0, 0));
  CHECK(bench.reader->path().fallbacks.empty());
  CHECK(simulated_gpu::registrations() == before + 5);
  CHECK(simulated_gpu::pinned_bytes() == pinned);
  CHECK(simulated_gpu::violations().empty());
}

TEST_CASE("where pages cannot be locked, mapped files go by the ring, with the reason", "[mmap]") {
  Bench bench;
  const Refusing refusing(Registration::refused);
  const io::BatchStatus status = bench.read_all();
  CHECK_FALSE(status.error);
  CHECK(is_sample(bench.memory.contents(), 0, 0));
  const io::IoPath path = bench.reader->path();
  CHECK(path.engine == "mmap");
  CHECK(path.mapped_bytes == file_size);
  REQUIRE(path.fallbacks.size() == 1);
  CHECK(path.fallbacks[0].starts_with(refusal));
}

TEST_CASE("a load of one rank locks the pages of its files; strict, it may not fall back",
          "[mmap]") {
  const OwnModel model(3);
  const std::uint64_t before = simulated_gpu::registrations();
  CHECK(is_right(load(model.plan(), self(Device::cuda()), mapping()), 0));
  CHECK(simulated_gpu::registrations() > before);
  const Refusing refusing(Registration::refused);
  Options strict = mapping();
  CHECK(is_right(load(model.plan(), self(Device::cuda()), strict), 0));
  strict.strict = true;
  try {
    load(model.plan(), self(Device::cuda()), strict);
    FAIL("no exception");
  } catch (const FallbackError& error) {
    CHECK(std::string(error.what()).find(refusal) != std::string::npos);
  }
}

TEST_CASE("a GPU for which nothing read-only can be registered copies through the ring", "[mmap]") {
  const Refusing refusing(Registration::unsupported);
  const OwnModel model(3);
  Options strict = mapping();
  strict.strict = true;  // it is no fallback
  const TensorSet loaded = load(model.plan(), self(Device::cuda()), strict);
  CHECK(is_right(loaded, 0));
  CHECK(loaded.report().ranks[0].io_path == "mmap buffered");
}

TEST_CASE("a GPU that fails while it copies from a mapping ends the read", "[.][mapping fault]") {
  Bench bench;
  const io::BatchStatus status = bench.read_all();
  REQUIRE(status.error);
  CHECK(status.error->kind == ErrorKind::transport);
  CHECK(status.bytes < file_size);
  CHECK(bench.reader->path().fallbacks.empty());
}
