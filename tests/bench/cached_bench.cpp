// How fast bytes get from the page cache to their place in memory: by pread(2), as loads do it, or
// copied out of a mapping of the file. Whole blocks, and rows of 7168 bytes, of which a rank keeps
// every second or every fourth, as of a tensor that is split along its last dimension; to memory in
// use, and as in a load to memory that is new, which the kernel zeroes on the way. Then rows of
// several lengths, each read by itself, all within 256 KiB in one call, with what lies between
// them, or each copied out of a mapping. Ways are taken in turns; as much memory is written before
// each run. Prints milliseconds, median (minimum-maximum), and how many times as long as the first
// way the others take, by the medians. Usage: cached_bench FILE TURNS THREADS; the file must be in
// the page cache.
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
#include <utility>
#include <vector>

#include "core/deadline.hpp"
#include "core/thread_pool.hpp"
#include "device/host/memory.hpp"
#include "source/files.hpp"

using namespace safeshuffle;

namespace {

constexpr std::uint64_t block = std::uint64_t{7168} * 256;
constexpr std::uint64_t row = 7168;

/// Of rows that are read together.
constexpr std::uint64_t joint_block = std::uint64_t{256} << 10;

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
  std::uint64_t bytes = 0;
  core::ThreadPool pool;
};

enum class Memory { in_use, fresh };

/// Moves one block from `from` on.
using Move = std::function<void(const std::byte* from, std::uint64_t offset, std::byte* to)>;

/// One way of moving all blocks of the file.
struct Way {
  std::string name;
  std::uint64_t block = 0;  ///< bytes
  bool maps = false;        ///< `from` is in a mapping; otherwise null
  Move move;
};

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

/// Rows of `bytes` bytes, the beginnings of `stride`: of joint_block bytes of the file.
struct Rows {
  std::uint64_t bytes = 0;
  std::uint64_t stride = 0;
};

void read_each(const Bench& bench, const Rows& rows, std::uint64_t offset, std::byte* to) {
  for (std::uint64_t at = 0; at + rows.stride <= joint_block; at += rows.stride, to += rows.bytes) {
    read_at(bench, offset + at, {to, rows.bytes});
  }
}

void read_jointly(const Bench& bench, const Rows& rows, std::uint64_t offset, std::byte* to) {
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(joint_block);
  read_at(bench, offset, {memory.get(), joint_block});
  for (std::uint64_t at = 0; at + rows.stride <= joint_block; at += rows.stride, to += rows.bytes) {
    std::memcpy(to, memory.get() + at, rows.bytes);
  }
}

std::shared_ptr<std::byte> prepare(std::uint64_t bytes, Memory memory) {
  auto written = device::allocate_pages(bytes);
  std::memset(written.get(), 1, bytes);
  if (memory == Memory::in_use) return written;
  written.reset();
  return device::allocate_pages(bytes);
}

double milliseconds(Bench& bench, Memory memory, const Way& way) {
  const std::uint64_t blocks = bench.bytes / way.block;
  const auto destination = prepare(blocks * way.block, memory);
  const auto start = core::Clock::now();
  {
    std::optional<Mapping> mapping;
    if (way.maps) mapping.emplace(bench.file->descriptor(), blocks * way.block);
    bench.pool.parallel_for(blocks, [&](std::size_t index) {
      const std::uint64_t offset = index * way.block;
      way.move(way.maps ? mapping->data() + offset : nullptr, offset, destination.get() + offset);
    });
  }
  return core::seconds_since(start) * 1e3;
}

double show(const std::string& name, std::vector<double> times) {
  std::ranges::sort(times);
  const double median = times[times.size() / 2];
  std::printf("%-50s %7.1f (%.1f-%.1f) ms\n", name.c_str(), median, times.front(), times.back());
  return median;
}

void compare(Bench& bench, Memory memory, int turns, const std::string& what,
             const std::vector<Way>& ways) {
  std::vector<std::vector<double>> times(ways.size());
  for (int turn = 0; turn < turns; ++turn) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      times[i].push_back(milliseconds(bench, memory, ways[i]));
    }
  }
  const std::string where = memory == Memory::fresh ? what + ", new memory" : what;
  double first = 0;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const double median = show(where + ", " + ways[i].name, times[i]);
    if (i == 0) {
      first = median;
    } else {
      std::printf("%-50s %7.2f times as long\n", "", median / first);
    }
  }
}

void compare_calls_with_mapping(Bench& bench, Memory memory, int turns) {
  const auto read = [](Move move) { return Way{"pread", block, false, std::move(move)}; };
  const auto copy = [](Move move) { return Way{"mapping", block, true, std::move(move)}; };
  compare(bench, memory, turns, "whole blocks",
          {read([&](const std::byte*, std::uint64_t offset, std::byte* to) {
             read_at(bench, offset, {to, block});
           }),
           copy([](const std::byte* from, std::uint64_t, std::byte* to) {
             std::memcpy(to, from, block);
           })});
  for (const std::uint64_t step : {2U, 4U}) {
    compare(bench, memory, turns, "one row of " + std::to_string(step),
            {read([&, step](const std::byte*, std::uint64_t offset, std::byte* to) {
               read_rows(bench, step, offset, to);
             }),
             copy([step](const std::byte* from, std::uint64_t, std::byte* to) {
               for_each_row(step, [&](std::uint64_t at, std::uint64_t place) {
                 std::memcpy(to + place, from + at, row);
               });
             })});
  }
}

void copy_each(const std::byte* from, const Rows& rows, std::byte* to) {
  for (std::uint64_t at = 0; at + rows.stride <= joint_block; at += rows.stride, to += rows.bytes) {
    std::memcpy(to, from + at, rows.bytes);
  }
}

void compare_ways_for_rows(Bench& bench, int turns) {
  for (const std::uint64_t stride : {1024U, 4096U, 8192U, 12288U, 16384U, 32768U}) {
    for (const std::uint64_t step : {2U, 4U, 8U}) {
      const Rows rows{stride / step, stride};
      const auto way = [&](const char* name, auto read) {
        return Way{name, joint_block, false,
                   [&bench, rows, read](const std::byte*, std::uint64_t offset, std::byte* to) {
                     read(bench, rows, offset, to);
                   }};
      };
      const Way copy{"mapping", joint_block, true,
                     [rows](const std::byte* from, std::uint64_t, std::byte* to) {
                       copy_each(from, rows, to);
                     }};
      compare(bench, Memory::in_use, turns,
              std::to_string(rows.bytes) + " bytes of every " + std::to_string(stride),
              {way("each", read_each), way("jointly", read_jointly), copy});
    }
  }
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() != 3) throw std::runtime_error("usage: see the source");
  const int turns = std::stoi(arguments[1]);
  Bench bench{.file = source::files().open(arguments[0], source::Access::cached),
              .bytes = 0,
              .pool = core::ThreadPool(static_cast<unsigned>(std::stoul(arguments[2])) - 1)};
  bench.bytes = bench.file->identity().size;
  if (bench.file->cached_bytes(0, bench.bytes) != bench.bytes) {
    throw std::runtime_error("not in the page cache");
  }
  for (const Memory memory : {Memory::in_use, Memory::fresh}) {
    compare_calls_with_mapping(bench, memory, turns);
  }
  compare_ways_for_rows(bench, turns);
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
