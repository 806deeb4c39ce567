// How fast bytes get from the page cache to their place in memory: by pread(2), as loads do it, or
// copied out of a mapping of the file. Whole blocks, and rows of 7168 bytes, of which a rank keeps
// every second or every fourth, as of a tensor that is split along its last dimension; to memory in
// use, and as in a load to memory that is new, which the kernel zeroes on the way. Ways are taken
// in turns; as much memory is written before each run. Prints milliseconds, median
// (minimum-maximum), and the ratio of the medians. Usage: cached_bench FILE TURNS THREADS; the file
// must be in the page cache.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <vector>

#include "core/deadline.hpp"
#include "core/thread_pool.hpp"
#include "device/host/memory.hpp"
#include "source/files.hpp"

using namespace safeshuffle;

namespace {

constexpr std::uint64_t block = std::uint64_t{7168} * 256;
constexpr std::uint64_t row = 7168;

/// Of the file. Its pages are faulted in anew.
class Mapping {
 public:
  Mapping(int descriptor, std::uint64_t bytes)
      : bytes_(bytes), memory_(::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, 0)) {
    if (memory_ == MAP_FAILED) throw std::runtime_error("cannot map the file");
  }
  ~Mapping() { ::munmap(memory_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  const std::byte* data() const { return static_cast<const std::byte*>(memory_); }

 private:
  std::uint64_t bytes_;
  void* memory_;
};

struct Bench {
  std::unique_ptr<source::Handle> file;
  std::uint64_t blocks = 0;
  core::ThreadPool pool;
};

enum class Memory { in_use, fresh };

/// Moves one block from `from` on.
using Move = std::function<void(const std::byte* from, std::uint64_t offset, std::byte* to)>;

void read_at(const Bench& bench, std::uint64_t offset, std::span<std::byte> to) {
  source::read(*bench.file, "the file", offset, to);
}

/// Every `step`-th row.
template <class MoveRow>
void for_each_row(std::uint64_t step, const MoveRow& move) {
  for (std::uint64_t at = 0; at < block; at += step * row) move(at, at / step);
}

void read_rows(const Bench& bench, std::uint64_t step, std::uint64_t offset, std::byte* to) {
  for_each_row(step, [&](std::uint64_t from, std::uint64_t place) {
    read_at(bench, offset + from, {to + place, row});
  });
}

std::shared_ptr<std::byte> prepare(const Bench& bench, Memory memory) {
  auto written = device::allocate_pages(bench.blocks * block);
  std::memset(written.get(), 1, bench.blocks * block);
  if (memory == Memory::in_use) return written;
  written.reset();
  return device::allocate_pages(bench.blocks * block);
}

double milliseconds(Bench& bench, Memory memory, bool maps, const Move& move) {
  const auto destination = prepare(bench, memory);
  const auto start = core::Clock::now();
  {
    std::optional<Mapping> mapping;
    if (maps) mapping.emplace(bench.file->descriptor(), bench.blocks * block);
    bench.pool.parallel_for(bench.blocks, [&](std::size_t index) {
      const std::uint64_t offset = index * block;
      move(maps ? mapping->data() + offset : nullptr, offset, destination.get() + offset);
    });
  }
  return core::seconds_since(start) * 1e3;
}

double show(const std::string& name, std::vector<double> times) {
  std::ranges::sort(times);
  const double median = times[times.size() / 2];
  std::printf("%-40s %7.1f (%.1f-%.1f) ms\n", name.c_str(), median, times.front(), times.back());
  return median;
}

void compare(Bench& bench, Memory memory, int turns, const std::string& what, const Move& read,
             const Move& copy) {
  std::vector<double> reading;
  std::vector<double> copying;
  for (int turn = 0; turn < turns; ++turn) {
    reading.push_back(milliseconds(bench, memory, false, read));
    copying.push_back(milliseconds(bench, memory, true, copy));
  }
  const std::string where = memory == Memory::fresh ? what + ", new memory" : what;
  const double by_reading = show(where + ", pread", reading);
  const double by_mapping = show(where + ", mapping", copying);
  std::printf("%-40s %7.2f times the time of pread\n", "", by_mapping / by_reading);
}

void compare_all(Bench& bench, Memory memory, int turns) {
  compare(
      bench, memory, turns, "whole blocks",
      [&](const std::byte*, std::uint64_t offset, std::byte* to) {
        read_at(bench, offset, {to, block});
      },
      [](const std::byte* from, std::uint64_t, std::byte* to) { std::memcpy(to, from, block); });
  for (const std::uint64_t step : {2U, 4U}) {
    compare(
        bench, memory, turns, "one row of " + std::to_string(step),
        [&, step](const std::byte*, std::uint64_t offset, std::byte* to) {
          read_rows(bench, step, offset, to);
        },
        [step](const std::byte* from, std::uint64_t, std::byte* to) {
          for_each_row(step, [&](std::uint64_t at, std::uint64_t place) {
            std::memcpy(to + place, from + at, row);
          });
        });
  }
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() != 3) throw std::runtime_error("usage: see the source");
  const int turns = std::stoi(arguments[1]);
  Bench bench{.file = source::files().open(arguments[0], source::Access::cached),
              .blocks = 0,
              .pool = core::ThreadPool(static_cast<unsigned>(std::stoul(arguments[2])) - 1)};
  const std::uint64_t size = bench.file->identity().size;
  if (bench.file->cached_bytes(0, size) != size) throw std::runtime_error("not in the page cache");
  bench.blocks = size / block;
  for (const Memory memory : {Memory::in_use, Memory::fresh}) compare_all(bench, memory, turns);
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cached_bench: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
