// The reader contract on every engine: buffered, direct, and as the page cache suggests.
#include <string>
#include <vector>

#include "contract/reader_contract.hpp"
#include "support/io_uring.hpp"

using namespace safeshuffle;

namespace {

/// Why a file would be read by another engine; empty if it is not.
std::vector<std::string> fallbacks_of(IoEngine engine) {
  const testing::ScratchDirectory directory;
  const FileInfo file = testing::write_sample(directory.file("a"), 0, 4 * testing::contract_chunk);
  const testing::AlignedMemory memory(file.size);
  testing::DirectStaging staging;
  const io::ReaderOptions options{engine, DirectIo::off, 4, testing::contract_chunk};
  const auto reader = io::make_reader(options, source::files(), {file}, staging);
  const io::ReadRange range{0, 0, file.size, memory.data()};
  testing::wait_for(*reader, reader->submit({&range, 1}));
  return reader->path().fallbacks;
}

}  // namespace

TEST_CASE("readers keep the contract", "[io][contract]") {
  const auto engine = GENERATE(IoEngine::posix, IoEngine::uring);
  const auto direct = GENERATE(DirectIo::off, DirectIo::on, DirectIo::automatic);
  const auto threads = GENERATE(1U, 4U);
  if (const auto fallbacks = fallbacks_of(engine); !fallbacks.empty()) {
    REQUIRE_FALSE((engine == IoEngine::uring && testing::has_io_uring()));
    WARN("skipped, because it would be the contract of posix: " << fallbacks.front());
    return;
  }
  const io::ReaderOptions options{engine, direct, threads, testing::contract_chunk};
  testing::check_reader_contract(
      [&](const source::Source& source, std::vector<FileInfo> files, device::Staging& staging) {
        return io::make_reader(options, source, std::move(files), staging);
      });
}
