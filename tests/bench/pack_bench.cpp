// The speed of packing on the host, as a share of a plain memcpy that moves as many bytes.
// Bytes = read + written. Usage: pack_bench [threads [MiB]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "core/deadline.hpp"
#include "device/host/host_device.hpp"

using namespace safeshuffle;

namespace {

constexpr int repetitions = 11;

struct Case {
  std::string name;
  PackItem item;
};

/// One block of the slab.
PackItem block(std::uint64_t bytes, std::uint64_t source, DType from = DType::U8,
               DType to = DType::U8) {
  PackItem item{.source = source, .rows = 1, .row_bytes = bytes, .from = from, .to = to};
  item.source_stride = bytes;
  item.destination_stride = destination_row_bytes(item);
  return item;
}

/// Every second run of `row_bytes`, gathered: a tensor cut in two along its last dimension.
PackItem cut(std::uint64_t bytes, std::uint64_t row_bytes, DType from = DType::U8,
             DType to = DType::U8) {
  PackItem item = block(row_bytes, 1, from, to);
  item.rows = bytes / row_bytes / 2;
  item.source_stride = row_bytes * 2;
  return item;
}

std::vector<Case> make_cases(std::uint64_t bytes) {
  using enum DType;
  return {
      {"aligned copy", block(bytes, 0)},
      {"misaligned copy", block(bytes, 1)},
      {"bf16 to f16", block(bytes, 1, BF16, F16)},
      {"f16 to bf16", block(bytes, 1, F16, BF16)},
      {"f32 to f16", block(bytes, 1, F32, F16)},
      {"f32 to bf16", block(bytes, 1, F32, BF16)},
      {"bf16 to f32", block(bytes / 2, 1, BF16, F32)},
      {"rows of 2 KiB", cut(bytes, 2048)},
      {"rows of 2 KiB, bf16 to f16", cut(bytes, 2048, BF16, F16)},
      {"rows of 64 B", cut(bytes, 64)},
      {"rows of 64 B, bf16 to f16", cut(bytes, 64, BF16, F16)},
      {"rows of 2 B", cut(bytes / 2, 2)},
  };
}

std::uint64_t moved_bytes(const PackItem& item) {
  return item.rows * (item.row_bytes + destination_row_bytes(item));
}

/// GB/s of each repetition.
struct Rates {
  std::vector<double> pack;
  std::vector<double> memcpy;
};

double rate(std::uint64_t bytes, const std::function<void()>& work) {
  const auto start = core::Clock::now();
  work();
  return static_cast<double>(bytes) / core::seconds_since(start) / 1e9;
}

/// Takes turns, so that whatever else the machine does falls on both.
Rates measure(std::uint64_t bytes, const std::function<void()>& pack,
              const std::function<void()>& plain) {
  Rates rates;
  pack();
  plain();
  for (int i = 0; i < repetitions; ++i) {
    rates.pack.push_back(rate(bytes, pack));
    rates.memcpy.push_back(rate(bytes, plain));
  }
  std::sort(rates.pack.begin(), rates.pack.end());
  std::sort(rates.memcpy.begin(), rates.memcpy.end());
  return rates;
}

double median(const std::vector<double>& sorted) {
  return sorted[sorted.size() / 2];
}

void print(const std::string& name, const Rates& rates) {
  std::printf("%-28s %7.2f (%6.2f-%6.2f) %9.2f (%6.2f-%6.2f) %7.2f\n", name.c_str(),
              median(rates.pack), rates.pack.front(), rates.pack.back(), median(rates.memcpy),
              rates.memcpy.front(), rates.memcpy.back(), median(rates.pack) / median(rates.memcpy));
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t threads =
      argc > 1 ? std::strtoul(argv[1], nullptr, 10) : device::HostDevice::default_threads();
  const std::uint64_t bytes = (argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 256) << 20;
  device::HostDevice host(threads);
  const auto slab = host.allocate(bytes + 4096);
  const auto arena = host.allocate(bytes + 4096);
  std::memset(slab.get(), 0x3c, bytes + 4096);
  const auto queue = host.make_queue();

  std::printf("%zu threads (memcpy: one), %d repetitions; GB/s of bytes read + written\n", threads,
              repetitions);
  std::printf("%-28s %23s %26s %8s\n", "", "pack (min-max)", "memcpy (min-max)", "ratio");
  for (const Case& each : make_cases(bytes)) {
    const std::uint64_t moved = moved_bytes(each.item);
    const auto pack = [&] { queue->pack({&each.item, 1}, {slab.get(), arena.get(), nullptr}); };
    const auto plain = [&] { std::memcpy(arena.get(), slab.get(), moved / 2); };
    print(each.name, measure(moved, pack, plain));
  }
}
