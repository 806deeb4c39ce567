// What every reader must do, whatever engine, staging and device it is made of.
#pragma once

#include <functional>
#include <numeric>

#include "core/file_identity.hpp"
#include "io/reader.hpp"
#include "support/catch.hpp"
#include "support/device_memory.hpp"
#include "support/gated_files.hpp"
#include "support/own_process.hpp"
#include "support/sample_file.hpp"
#include "support/test_staging.hpp"

namespace safeshuffle::testing {

/// Makes the reader under test, with one staging or another; chunks are at most 64 KiB.
using MakeReaderOn = std::function<std::unique_ptr<io::Reader>(
    const source::Source& source, std::vector<FileInfo>, device::Staging&)>;
using MakeReader =
    std::function<std::unique_ptr<io::Reader>(const source::Source& source, std::vector<FileInfo>)>;

inline constexpr std::uint64_t contract_chunk = std::uint64_t{64} << 10;

inline io::BatchStatus wait_for(io::Reader& reader, io::BatchId batch) {
  for (int tries = 0; tries < 300; ++tries) {
    io::BatchStatus status = reader.poll(batch, std::chrono::milliseconds(100));
    if (status.done) return status;
  }
  throw std::runtime_error("a batch was not done within 30 s");
}

inline void reads_any_alignment(device::Device& device, const MakeReader& make) {
  const ScratchDirectory directory;
  constexpr std::uint64_t size = 300'001;
  const auto reader = make(source::files(), {write_sample(directory.file("a"), 0, size)});
  for (const std::uint64_t offset : {0U, 1U, 4095U, 4096U, 5000U, 70'000U}) {
    for (const std::uint64_t bytes : {1U, 100U, 4096U, 8192U, 200'001U}) {
      for (const std::size_t shift : {0U, 1U}) {  // 0: congruent to the offset
        const DeviceMemory memory(device, bytes, (offset + shift) % 4096);
        const io::ReadRange range{0, offset, bytes, memory.data()};
        const io::BatchStatus status = wait_for(*reader, reader->submit({&range, 1}));
        CHECK_FALSE(status.error);
        CHECK(status.bytes == bytes);
        CHECK(is_sample(memory.contents(), 0, offset));
      }
    }
  }
}

inline void reads_many_batches_of_many_files(device::Device& device, const MakeReader& make) {
  const ScratchDirectory directory;
  constexpr std::uint32_t count = 80;  // more than are kept open
  constexpr std::uint64_t size = 10'000;
  std::vector<FileInfo> files;
  for (std::uint32_t i = 0; i < count; ++i) {
    files.push_back(write_sample(directory.file(std::to_string(i)), i, size));
  }
  const std::ptrdiff_t descriptors = open_descriptors();
  const auto reader = make(source::files(), files);
  const DeviceMemory memory(device, 2 * count * size);
  std::vector<io::BatchId> batches;
  for (std::uint32_t i = 0; i < 2 * count; ++i) {
    const std::uint32_t file = i % count;
    std::byte* const at = memory.data() + i * size;
    const std::vector<io::ReadRange> ranges{{file, 5000, 5000, at + 5000}, {file, 0, 5000, at}};
    batches.push_back(reader->submit(ranges));
  }
  for (std::uint32_t i = 0; i < 2 * count; ++i) {
    CHECK(batches[i] == i);
    const io::BatchStatus status = wait_for(*reader, batches[i]);
    CHECK_FALSE(status.error);
    CHECK(status.bytes == size);
    CHECK(is_sample(memory.contents(i * size, size), i % count, 0));
  }
  CHECK(reader->busy_seconds() > 0);
  CHECK(open_descriptors() < descriptors + count);
}

inline void an_empty_batch_is_done(const MakeReader& make) {
  const ScratchDirectory directory;
  const auto reader = make(source::files(), {write_sample(directory.file("a"), 0, 10)});
  const io::ReadRange nothing{0, 3, 0, nullptr};
  CHECK(wait_for(*reader, reader->submit({})).bytes == 0);
  CHECK(wait_for(*reader, reader->submit({&nothing, 1})).done);
}

/// Reads all of file 0 of `files` and expects an error that has its path.
inline ErrorRecord read_and_fail(device::Device& device, const MakeReader& make,
                                 const FileInfo& file) {
  const auto reader = make(source::files(), {file});
  const DeviceMemory memory(device, file.size);
  const io::ReadRange range{0, 0, file.size, memory.data()};
  const io::BatchStatus status = wait_for(*reader, reader->submit({&range, 1}));
  REQUIRE(status.error);
  CHECK(status.error->kind == ErrorKind::io);
  CHECK(status.error->file == file.path);
  return *status.error;
}

inline void a_missing_file_is_an_error(device::Device& device, const MakeReader& make) {
  const ScratchDirectory directory;
  FileInfo file = write_sample(directory.file("a"), 0, 10'000);
  std::filesystem::remove(file.path);
  CHECK(read_and_fail(device, make, file).code == ENOENT);
}

inline void a_changed_file_is_an_error(device::Device& device, const MakeReader& make) {
  const ScratchDirectory directory;
  FileInfo newer = write_sample(directory.file("a"), 0, 10'000);
  newer.modified_ns -= 1;
  CHECK(read_and_fail(device, make, newer).cause == "file changed since its header was read");
  const FileInfo longer = write_sample(directory.file("b"), 0, 10'000);
  std::filesystem::resize_file(longer.path, 9'999);
  CHECK(read_and_fail(device, make, longer).cause == "file changed since its header was read");
}

inline void a_range_past_the_end_is_an_error_and_the_others_are_read(device::Device& device,
                                                                     const MakeReader& make) {
  const ScratchDirectory directory;
  const auto reader = make(source::files(), {write_sample(directory.file("a"), 0, 10'000)});
  const DeviceMemory memory(device, 20'000);
  const std::vector<io::ReadRange> ranges{{0, 0, 4'000, memory.data()},
                                          {0, 8'192, 4'000, memory.data() + 8'192}};
  const io::BatchStatus status = wait_for(*reader, reader->submit(ranges));
  REQUIRE(status.error);
  CHECK(status.error->cause == "file ended early");
  CHECK(status.error->offset == 10'000);
  CHECK(status.bytes == 4'000);
  CHECK(is_sample(memory.contents(0, 4'000), 0, 0));
}

/// As many batches as there are, so that most of them are waiting when they are dropped.
inline void cancelling_ends_what_was_not_begun(device::Device& device, const MakeReader& make) {
  const ScratchDirectory directory;
  const FileInfo file = write_sample(directory.file("a"), 0, 4'000'000);
  constexpr std::size_t batches = 20;
  const DeviceMemory memory(device, file.size);
  const io::ReadRange range{0, 0, file.size, memory.data()};
  GatedFiles source;
  const auto reader = make(source, {file});
  for (std::size_t batch = 0; batch < batches; ++batch) reader->submit({&range, 1});
  reader->cancel();
  source.open_gate();
  CHECK(wait_for(*reader, batches - 1).error);
  CHECK(wait_for(*reader, batches - 1).bytes == 0);
  const io::BatchId later = reader->submit({&range, 1});
  CHECK(wait_for(*reader, later).error);
}

inline void dropping_a_reader_leaves_nothing(device::Device& device, const MakeReader& make) {
  const ScratchDirectory directory;
  const FileInfo file = write_sample(directory.file("a"), 0, 4'000'000);
  constexpr std::size_t batches = 4;
  const DeviceMemory memory(device, batches * file.size);
  {  // libraries keep what they open when they are first used
    const auto first = make(source::files(), {file});
    const io::ReadRange range{0, 0, file.size, memory.data()};
    wait_for(*first, first->submit({&range, 1}));
  }
  const std::ptrdiff_t descriptors = open_descriptors();
  const std::ptrdiff_t threads = running_threads();
  for (int i = 0; i < 5; ++i) {
    const auto reader = make(source::files(), {file});
    for (std::size_t batch = 0; batch < batches; ++batch) {
      const io::ReadRange range{0, 0, file.size, memory.data() + batch * file.size};
      reader->submit({&range, 1});
    }
    reader->poll(0, std::chrono::microseconds(i * 200));
  }
  CHECK(open_descriptors() == descriptors);
  CHECK(threads_come_down_to(threads));
}

/// One slot for all pieces, which is used again when its data has landed, and not before.
inline void pieces_wait_for_a_slot(const MakeReaderOn& make) {
  const ScratchDirectory directory;
  const FileInfo file = write_sample(directory.file("a"), 0, 4 * contract_chunk + 77);
  const AlignedMemory memory(file.size);
  const io::ReadRange range{0, 0, file.size, memory.data()};
  HeldStaging staging(contract_chunk, true);
  const auto reader = make(source::files(), {file}, staging);
  const io::BatchId batch = reader->submit({&range, 1});
  for (std::uint64_t landed = 0; landed < file.size; landed += contract_chunk) {
    wait_until([&] { return staging.holds(); });
    const io::BatchStatus status = reader->poll(batch, std::chrono::milliseconds(5));
    CHECK_FALSE(status.done);
    CHECK(status.bytes == landed);
    CHECK(status.read == (landed + contract_chunk > file.size));
    CHECK(is_sample(memory.span().first(landed), 0, 0));
    staging.land();
  }
  const io::BatchStatus status = wait_for(*reader, batch);
  CHECK_FALSE(status.error);
  CHECK(is_sample(memory.span(), 0, 0));
}

inline void without_a_slot_nothing_blocks(const MakeReaderOn& make) {
  const ScratchDirectory directory;
  const FileInfo file = write_sample(directory.file("a"), 0, 4 * contract_chunk);
  const AlignedMemory memory(file.size);
  const io::ReadRange range{0, 0, file.size, memory.data()};
  HeldStaging staging(contract_chunk, false);
  const auto cancelled = make(source::files(), {file}, staging);
  cancelled->submit({&range, 1});
  CHECK_FALSE(cancelled->poll(0, std::chrono::milliseconds(5)).done);
  cancelled->cancel();
  CHECK(wait_for(*cancelled, 0).error);
  CHECK(cancelled->path().mode.empty());
  const auto dropped = make(source::files(), {file}, staging);
  dropped->submit({&range, 1});
}

/// Runs the suite of one staging, of `device`, as sections of the current test case.
inline void check_reader_contract(device::Device& device, const MakeReader& make) {
  SECTION("any alignment") {
    reads_any_alignment(device, make);
  }
  SECTION("many batches of many files") {
    reads_many_batches_of_many_files(device, make);
  }
  SECTION("an empty batch") {
    an_empty_batch_is_done(make);
  }
  SECTION("a missing file") {
    a_missing_file_is_an_error(device, make);
  }
  SECTION("a changed file") {
    a_changed_file_is_an_error(device, make);
  }
  SECTION("past the end") {
    a_range_past_the_end_is_an_error_and_the_others_are_read(device, make);
  }
  SECTION("cancelled") {
    cancelling_ends_what_was_not_begun(device, make);
  }
  SECTION("dropped while reading") {
    dropping_a_reader_leaves_nothing(device, make);
  }
}

/// Runs the whole suite on the host as sections of the current test case.
inline void check_reader_contract(const MakeReaderOn& make) {
  const auto device = device::open_device(Device::host());
  const auto make_on = [&make](device::Staging& staging) -> MakeReader {
    return [&](const source::Source& source, std::vector<FileInfo> files) {
      return make(source, std::move(files), staging);
    };
  };
  SECTION("into memory that the host can write") {
    DirectStaging staging;
    check_reader_contract(*device, make_on(staging));
  }
  SECTION("through slots that land later") {
    constexpr std::size_t slots = 3;
    DelayedStaging staging(contract_chunk, slots);
    check_reader_contract(*device, make_on(staging));
    CHECK(staging.free_slots() == slots);
  }
  SECTION("through one slot") {
    DelayedStaging staging(contract_chunk, 1);
    check_reader_contract(*device, make_on(staging));
    CHECK(staging.free_slots() == 1);
  }
  SECTION("pieces wait for a slot") {
    pieces_wait_for_a_slot(make);
  }
  SECTION("without a slot nothing blocks") {
    without_a_slot_nothing_blocks(make);
  }
}

}  // namespace safeshuffle::testing
