// Reading into a GPU, with GPUDirect Storage where this machine has cuFile.
#include <algorithm>

#include "contract/reader_contract.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

TEST_CASE("readers of a GPU keep the contract", "[gds][contract]") {
  const auto engine = GENERATE(IoEngine::posix, IoEngine::gds);
  const auto direct = GENERATE(DirectIo::off, DirectIo::on);
  const auto device = device::open_device(Device::cuda());
  const auto staging = device->make_staging(contract_chunk, 3);
  const io::ReaderOptions options{engine, direct, 4, contract_chunk};
  check_reader_contract(*device, [&](const source::Source& source, std::vector<FileInfo> files) {
    return io::make_reader(options, source, std::move(files), *staging);
  });
}

TEST_CASE("whole pages go straight into the memory of a GPU", "[gds]") {
  const auto device = device::open_device(Device::cuda());
  const ScratchDirectory directory;
  const FileInfo file = write_sample(directory.file("a"), 0, 300'001);
  constexpr std::uint64_t offset = 5000;
  constexpr std::uint64_t bytes = 200'001;
  const DeviceMemory memory(*device, bytes, offset % 4096);
  const std::vector<std::span<std::byte>> all{{memory.data(), bytes}};
  const auto staging = device->make_staging(contract_chunk, 2);
  const auto reader = io::make_reader({IoEngine::gds, DirectIo::on, 2, contract_chunk},
                                      source::files(), {file}, *staging, all);
  const io::ReadRange range{0, offset, bytes, memory.data()};
  const io::BatchStatus status = wait_for(*reader, reader->submit({&range, 1}));
  CHECK_FALSE(status.error);
  CHECK(is_sample(memory.contents(), 0, offset));
  const io::IoPath path = reader->path();
  for (const std::string& fallback : path.fallbacks) WARN(fallback);
  if (path.device_bytes == 0) return;
  CHECK(path.engine == "gds+posix");  // the head and the tail are not whole pages
  CHECK(status.reads);
  CHECK(status.copies);
  CHECK(path.mode == "direct");
  CHECK(path.direct_bytes == bytes);
  CHECK(path.device_bytes == 204'800 - 8192);
}
