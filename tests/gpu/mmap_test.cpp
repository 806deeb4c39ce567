// Mapped files: to a GPU straight from the mapping where its pages can be locked, else through the
// ring.
#include <algorithm>

#include "safeshuffle/loader.hpp"

#include "contract/reader_contract.hpp"
#include "support/own_model.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

io::ReaderOptions mapping_options(bool locks_pages) {
  return {.engine = IoEngine::mmap,
          .direct = DirectIo::off,
          .threads = 4,
          .chunk = contract_chunk,
          .locks_pages = locks_pages};
}

bool has_worker(const io::BatchStatus& status, io::Worker worker) {
  return std::ranges::find(status.activities, worker, &io::Activity::worker) !=
         status.activities.end();
}

}  // namespace

TEST_CASE("readers that copy to a GPU from mapped files keep the contract", "[mmap][contract]") {
  const io::ReaderOptions options = mapping_options(GENERATE(true, false));
  const auto device = device::open_device(Device::cuda());
  const auto staging = device->make_staging(contract_chunk, 3);
  check_reader_contract(*device, [&](const source::Source& source, std::vector<FileInfo> files) {
    return io::make_reader(options, source, std::move(files), *staging);
  });
}

TEST_CASE("mapped files go straight to a GPU if their pages may be locked", "[mmap]") {
  const bool locks_pages = GENERATE(true, false);
  const auto device = device::open_device(Device::cuda());
  const ScratchDirectory directory;
  constexpr std::uint64_t offset = 5000;
  constexpr std::uint64_t bytes = 200'001;
  const FileInfo file = write_sample(directory.file("a"), 0, 300'001);
  const DeviceMemory memory(*device, bytes);
  const auto staging = device->make_staging(contract_chunk, 2);
  const auto reader =
      io::make_reader(mapping_options(locks_pages), source::files(), {file}, *staging);
  const io::ReadRange range{0, offset, bytes, memory.data()};
  const io::BatchStatus status = wait_for(*reader, reader->submit({&range, 1}));
  CHECK_FALSE(status.error);
  CHECK(is_sample(memory.contents(), 0, offset));
  const io::IoPath path = reader->path();
  CHECK(path.engine == "mmap");
  CHECK(path.mode == "buffered");
  CHECK(path.buffered_bytes == bytes);
  CHECK(path.mapped_bytes == bytes);
  CHECK(path.device_bytes == 0);  // that is GPUDirect Storage
  CHECK(has_worker(status, io::Worker::mmap));
  for (const std::string& fallback : path.fallbacks) WARN(fallback);
  if (!staging->copies_mapped()) WARN("this GPU cannot register memory that is mapped read-only");
  const bool straight = locks_pages && staging->copies_mapped() && path.fallbacks.empty();
  CHECK(has_worker(status, io::Worker::copies) == !straight);
}

TEST_CASE("a load onto a GPU maps its files", "[mmap]") {
  const OwnModel model(3);
  Options options;
  options.io = IoEngine::mmap;
  options.direct = DirectIo::off;
  const TensorSet loaded = load(model.plan(), self(Device::cuda()), options);
  CHECK(is_right(loaded, 0));
  const RankReport& rank = loaded.report().ranks[0];
  for (const std::string& fallback : rank.fallbacks) WARN(fallback);
  CHECK(rank.io_path == "mmap buffered");  // also if it goes by the ring
}
