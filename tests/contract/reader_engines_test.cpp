// The reader contract on every engine: buffered, direct, and as the page cache suggests.
#include "contract/reader_contract.hpp"

using namespace safeshuffle;

TEST_CASE("readers keep the contract", "[io][contract]") {
  const auto engine = GENERATE(IoEngine::posix, IoEngine::uring, IoEngine::mmap);
  const auto direct = GENERATE(DirectIo::off, DirectIo::on, DirectIo::automatic);
  const auto threads = GENERATE(1U, 4U);
  const io::ReaderOptions options{engine, direct, threads, testing::contract_chunk};
  testing::check_reader_contract(
      [&](const source::Source& source, std::vector<FileInfo> files, device::Staging& staging) {
        return io::make_reader(options, source, std::move(files), staging);
      });
}
