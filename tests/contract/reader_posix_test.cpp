// The reader contract on the posix engine: buffered and direct, both ways of staging.
#include "contract/reader_contract.hpp"
#include "support/test_staging.hpp"

using namespace safeshuffle;

TEST_CASE("the posix reader keeps the contract", "[io][contract]") {
  const auto direct = GENERATE(DirectIo::off, DirectIo::on);
  const auto threads = GENERATE(1U, 4U);
  const io::ReaderOptions options{IoEngine::posix, direct, threads, testing::contract_chunk};

  SECTION("into memory that the host can write") {
    testing::DirectStaging staging;
    testing::check_reader_contract([&](const source::Source& source, std::vector<FileInfo> files) {
      return io::make_reader(options, source, std::move(files), staging);
    });
  }
  SECTION("through slots that land later") {
    testing::DelayedStaging staging(testing::contract_chunk, 3);
    testing::check_reader_contract([&](const source::Source& source, std::vector<FileInfo> files) {
      return io::make_reader(options, source, std::move(files), staging);
    });
    CHECK(staging.free_slots() == 3);
  }
}
