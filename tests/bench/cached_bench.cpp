// How fast rows that lie apart from each other get from a file in the page cache to memory in use:
// each read by itself, or all within 256 KiB in one call, with what lies between them, and copied
// from there (core/cached_rows.hpp). Ways are taken in turns; as much memory is written before each
// run. Prints milliseconds, median (minimum-maximum), and how many times as long as the first way
// the second takes, by the medians. Usage: cached_bench FILE TURNS THREADS; the file must be in the
// page cache.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/deadline.hpp"
#include "core/thread_pool.hpp"
#include "device/host/memory.hpp"
#include "source/files.hpp"

using namespace safeshuffle;

namespace {

/// Of the file, whose rows are read by one thread.
constexpr std::uint64_t block = std::uint64_t{256} << 10;

struct Bench {
  std::unique_ptr<source::Handle> file;
  std::uint64_t bytes = 0;
  core::ThreadPool pool;
};

/// Rows of `bytes` bytes, the beginnings of `stride`.
struct Rows {
  std::uint64_t bytes = 0;
  std::uint64_t stride = 0;
};

/// One way of reading the rows of a block.
struct Way {
  const char* name;
  void (*read)(const Bench& bench, const Rows& rows, std::uint64_t offset, std::byte* to);
};

void read_at(const Bench& bench, std::uint64_t offset, std::span<std::byte> to) {
  source::read(*bench.file, "the file", offset, to);
}

void read_each(const Bench& bench, const Rows& rows, std::uint64_t offset, std::byte* to) {
  for (std::uint64_t at = 0; at + rows.stride <= block; at += rows.stride, to += rows.bytes) {
    read_at(bench, offset + at, {to, rows.bytes});
  }
}

void read_jointly(const Bench& bench, const Rows& rows, std::uint64_t offset, std::byte* to) {
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(block);
  read_at(bench, offset, {memory.get(), block});
  for (std::uint64_t at = 0; at + rows.stride <= block; at += rows.stride, to += rows.bytes) {
    std::memcpy(to, memory.get() + at, rows.bytes);
  }
}

constexpr std::array<Way, 2> ways{{{"each", read_each}, {"jointly", read_jointly}}};

double milliseconds(Bench& bench, const Rows& rows, const Way& way) {
  const std::uint64_t blocks = bench.bytes / block;
  const auto destination = device::allocate_pages(blocks * block);
  std::memset(destination.get(), 1, blocks * block);
  const auto start = core::Clock::now();
  bench.pool.parallel_for(blocks, [&](std::size_t index) {
    const std::uint64_t offset = index * block;
    way.read(bench, rows, offset, destination.get() + offset);
  });
  return core::seconds_since(start) * 1e3;
}

double show(const std::string& name, std::vector<double> times) {
  std::ranges::sort(times);
  const double median = times[times.size() / 2];
  std::printf("%-50s %7.1f (%.1f-%.1f) ms\n", name.c_str(), median, times.front(), times.back());
  return median;
}

void compare(Bench& bench, const Rows& rows, int turns) {
  std::array<std::vector<double>, ways.size()> times;
  for (int turn = 0; turn < turns; ++turn) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      times[i].push_back(milliseconds(bench, rows, ways[i]));
    }
  }
  const std::string what =
      std::to_string(rows.bytes) + " bytes of every " + std::to_string(rows.stride) + ", ";
  const double each = show(what + ways[0].name, times[0]);
  const double jointly = show(what + ways[1].name, times[1]);
  std::printf("%-50s %7.2f times as long\n", "", jointly / each);
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
  for (const std::uint64_t stride : {1024U, 4096U, 8192U, 12288U, 16384U, 32768U}) {
    for (const std::uint64_t step : {2U, 4U, 8U}) compare(bench, {stride / step, stride}, turns);
  }
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
