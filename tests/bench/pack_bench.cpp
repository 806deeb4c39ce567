// The speed of packing, as a share of a plain copy that moves as many bytes on the same device.
// Bytes = read + written. Exit status with --check: 1 if a target is missed; only cuda has targets.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/pack_rig.hpp"
#include "device/host/host_device.hpp"

using namespace safeshuffle;
using bench::PackRig;

namespace {

struct Case {
  std::string name;
  std::vector<PackItem> items;
  double target = 0;  ///< least ratio on cuda; 0: none
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

/// The same bytes in many blocks.
std::vector<PackItem> blocks(std::uint64_t bytes) {
  constexpr std::uint64_t count = 1024;
  std::vector<PackItem> items(count, block(bytes / count, 1));
  for (std::uint64_t i = 0; i < count; ++i) {
    items[i].source += i * (bytes / count);
    items[i].destination += i * (bytes / count);
  }
  return items;
}

/// Llama-2's down_proj, cut into 8, has rows of 7168 (70B) or 2752 bytes (7B). Rows of 2750 bytes
/// end anywhere, which takes single bytes to store.
std::vector<Case> make_cases(std::uint64_t bytes) {
  using enum DType;
  return {
      {"aligned copy", {block(bytes, 0)}, 0.85},
      {"misaligned copy", {block(bytes, 1)}, 0.85},
      {"misaligned copy, 1024 items", blocks(bytes), 0.85},
      {"bf16 to f16", {block(bytes, 1, BF16, F16)}, 0.85},
      {"f16 to bf16", {block(bytes, 1, F16, BF16)}},
      {"f32 to f16", {block(bytes, 1, F32, F16)}},
      {"f32 to bf16", {block(bytes, 1, F32, BF16)}},
      {"bf16 to f32", {block(bytes / 2, 1, BF16, F32)}},
      {"rows of 16 KiB *", {cut(bytes, 16384)}, 0.7},
      {"rows of 7168 B, 70B at TP 8", {cut(bytes, 7168)}},
      {"rows of 4 KiB *", {cut(bytes, 4096)}, 0.7},
      {"rows of 2752 B, 7B at TP 8", {cut(bytes, 2752)}},
      {"rows of 2750 B", {cut(bytes, 2750)}},
      {"rows of 2 KiB *", {cut(bytes, 2048)}, 0.7},
      {"rows of 2 KiB, bf16 to f16 *", {cut(bytes, 2048, BF16, F16)}, 0.7},
      {"rows of 64 B", {cut(bytes, 64)}},
      {"rows of 64 B, bf16 to f16", {cut(bytes, 64, BF16, F16)}},
      {"rows of 2 B", {cut(bytes / 2, 2)}},
  };
}

std::uint64_t moved_bytes(const std::vector<PackItem>& items) {
  std::uint64_t bytes = 0;
  for (const PackItem& item : items) {
    bytes += item.rows * (item.row_bytes + destination_row_bytes(item));
  }
  return bytes;
}

/// GB/s of each repetition, in ascending order.
struct Rates {
  std::vector<double> pack;
  std::vector<double> copy;
};

double median(const std::vector<double>& sorted) {
  return sorted[sorted.size() / 2];
}

double ratio(const Rates& rates) {
  return median(rates.pack) / median(rates.copy);
}

/// Takes turns, so that whatever else the machine does falls on both.
Rates measure(PackRig& rig, const std::vector<PackItem>& items) {
  const std::uint64_t moved = moved_bytes(items);
  const auto bytes = static_cast<double>(moved);
  Rates rates;
  rig.pack(items);
  rig.copy(moved / 2);
  for (int i = 0; i < rig.repetitions(); ++i) {
    rates.pack.push_back(bytes / rig.pack(items) / 1e9);
    rates.copy.push_back(bytes / rig.copy(moved / 2) / 1e9);
  }
  std::sort(rates.pack.begin(), rates.pack.end());
  std::sort(rates.copy.begin(), rates.copy.end());
  return rates;
}

void print(const std::string& name, const Rates& rates, double target) {
  std::printf("%-28s %7.2f (%6.1f-%6.1f) %9.2f (%6.1f-%6.1f) %7.2f", name.c_str(),
              median(rates.pack), rates.pack.front(), rates.pack.back(), median(rates.copy),
              rates.copy.front(), rates.copy.back(), ratio(rates));
  if (target != 0) std::printf(" %7.2f%s", target, ratio(rates) < target ? " missed" : "");
  std::printf("\n");
}

struct Arguments {
  bool cuda = false;
  bool check = false;
  std::size_t threads = device::HostDevice::default_threads();  ///< of the host
  std::uint64_t mib = 256;
  std::string only;  ///< the beginning of the names of the cases; empty: all
};

constexpr const char* usage =
    "usage: pack_bench [--device host|cuda] [--threads N] [--mib N] [--only CASE] [--check]";

std::uint64_t parse_count(const std::string& text) {
  char* end = nullptr;
  const std::uint64_t count = std::strtoull(text.c_str(), &end, 10);
  if (*end != 0 || count == 0) throw std::invalid_argument(usage);
  return count;
}

bool parse_device(const std::string& text) {
  if (text != "host" && text != "cuda") throw std::invalid_argument(usage);
  return text == "cuda";
}

Arguments parse(const std::vector<std::string>& words) {
  Arguments arguments;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string value = i + 1 < words.size() ? words[i + 1] : "";
    if (words[i] == "--check") {
      arguments.check = true;
      continue;
    }
    if (words[i] == "--device") {
      arguments.cuda = parse_device(value);
    } else if (words[i] == "--threads") {
      arguments.threads = parse_count(value);
    } else if (words[i] == "--mib") {
      arguments.mib = parse_count(value);
    } else if (words[i] == "--only") {
      arguments.only = value;
    } else {
      throw std::invalid_argument(usage);
    }
    ++i;
  }
  return arguments;
}

std::vector<Case> chosen_cases(std::uint64_t bytes, const std::string& only) {
  std::vector<Case> cases = make_cases(bytes);
  std::erase_if(cases, [&](const Case& each) { return !each.name.starts_with(only); });
  if (cases.empty()) throw std::invalid_argument("there is no case '" + only + "'");
  return cases;
}

/// Whether all targets are met.
bool run(PackRig& rig, const std::vector<Case>& cases, bool has_targets) {
  std::printf("%s, %d repetitions; GB/s of bytes read + written\n", rig.description().c_str(),
              rig.repetitions());
  std::printf("%-28s %23s %26s %8s%s\n", "", "pack (min-max)",
              (rig.copy_name() + " (min-max)").c_str(), "ratio", has_targets ? "  target" : "");
  bool met = true;
  for (const Case& each : cases) {
    const double target = has_targets ? each.target : 0;
    const Rates rates = measure(rig, each.items);
    print(each.name, rates, target);
    met = met && ratio(rates) >= target;
  }
  std::printf("* best cases: in the target all rows begin at multiples of 2 KiB\n");
  return met;
}

}  // namespace

int main(int argc, char** argv) try {
  const Arguments arguments = parse({argv + 1, argv + argc});
  const std::uint64_t bytes = arguments.mib << 20;
  const auto rig =
      arguments.cuda ? bench::make_cuda_rig(bytes) : bench::make_host_rig(arguments.threads, bytes);
  const bool met = run(*rig, chosen_cases(bytes, arguments.only), arguments.cuda);
  return met || !arguments.check ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
