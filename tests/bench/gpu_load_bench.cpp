// The speed of a load onto one GPU, as a share of a plain copy from pinned memory to the GPU, taken
// in turns on as many bytes; and the two ways in which the CPU could fill that pinned memory with
// as many threads (CpuCopies), the lower of which is a limit, too. Under each line, where the
// load's time goes. The files have just been written and are in the page cache, or in tmpfs, which
// is checked. What does not fit into the directory is not run, which the table says. Usage:
// gpu_load_bench DIRECTORY [GB FILES [THREADS [CHUNK_KIB [WINDOW_MIB]]]].
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "safeshuffle/loader.hpp"

#include "bench/cached_model.hpp"
#include "core/deadline.hpp"
#include "device/cuda/call.hpp"
#include "device/cuda/session.hpp"

using namespace safeshuffle;
using bench::CachedModel;
using bench::CpuCopies;

namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr std::uint64_t copy_bytes = 256 * mib;  // of one copy; the buffer is reused

/// How it is loaded; 0: the default.
struct Setting {
  unsigned threads = 0;
  unsigned chunk_kib = 0;
  unsigned window_mib = 0;
  DTypePolicy dtype = DTypePolicy::keep;
};

/// One model, loaded in several ways.
struct Case {
  double gigabytes = 1;
  std::uint64_t files = 1;
  std::vector<Setting> settings{{}, {.dtype = DTypePolicy::f16}};
};

/// By threads, chunk and window: what the defaults could be.
const std::vector<Setting> sweep{
    {},
    {.dtype = DTypePolicy::f16},
    {15, 512, 256},
    {15, 1024, 256},
    {15, 2048, 256},
    {15, 4096, 256},  // a slot for each thread
    {4, 2048, 256},
    {8, 2048, 256},
    {12, 2048, 256},
    {16, 2048, 256},
    {15, 2048, 64},
    {15, 2048, 128},
    {15, 2048, 512},
};

/// More where they are cheap.
int repetitions(const Case& which) {
  return which.gigabytes > 8 ? 3 : 5;
}

/// A plain copy of as many bytes from pinned memory.
class PinnedCopy {
 public:
  explicit PinnedCopy(device::SharedSession session) : session_(std::move(session)) {
    source_ = device::allocate_pinned(session_, copy_bytes);
    target_ = device::allocate_on_gpu(session_, copy_bytes);
    stream_ = device::make_stream(session_);
  }

  double seconds(std::uint64_t bytes) const {
    const device::GpuScope scope(session_->gpu());
    const auto start = core::Clock::now();
    for (std::uint64_t done = 0; done < bytes; done += copy_bytes) {
      device::check_cuda(
          cudaMemcpyAsync(target_.get(), source_.get(), std::min(copy_bytes, bytes - done),
                          cudaMemcpyHostToDevice, stream_.get()),
          "cudaMemcpyAsync");
    }
    device::check_cuda(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
    return core::seconds_since(start);
  }

 private:
  device::SharedSession session_;
  std::shared_ptr<std::byte> source_;
  std::shared_ptr<std::byte> target_;
  device::Stream stream_{nullptr, {}};
};

Options options_of(const Setting& setting) {
  Options options;
  options.plan.dtype = setting.dtype;
  options.threads = setting.threads;
  options.chunk = setting.chunk_kib * std::uint64_t{1024};
  if (setting.window_mib != 0) options.plan.window = setting.window_mib * mib;
  return options;
}

struct Load {
  double seconds = 0;
  Report report;
};

/// Of the whole call, with the freeing of what only the load needs; not of the group, and not with
/// the freeing of the tensors.
Load load_model(const CachedModel& model, const Setting& setting) {
  const Communicator comm = self(Device::cuda());
  const auto start = core::Clock::now();
  const TensorSet loaded = load(model.path(), comm, options_of(setting));
  return {core::seconds_since(start), loaded.report()};
}

/// The loads, and what they are compared with, in seconds.
struct Turns {
  std::vector<Load> loads;
  std::vector<double> copies;
  std::vector<double> cpu_reads;
  std::vector<double> cpu_copies;
  std::vector<double> shares;  ///< copy ÷ load of the same turn
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// What `figure_of` gives for each of the loads.
template <class FigureOf>
std::vector<double> figures(const std::vector<Load>& loads, const FigureOf& figure_of) {
  std::vector<double> figures;
  for (const Load& load : loads) figures.push_back(figure_of(load));
  return figures;
}

Turns take_turns(const CachedModel& model, const Setting& setting, int repetitions,
                 const PinnedCopy& copy, const CpuCopies& cpu) {
  Turns turns;
  for (int i = 0; i < repetitions; ++i) {
    turns.copies.push_back(copy.seconds(model.tensor_bytes()));
    turns.cpu_reads.push_back(cpu.read_seconds());
    turns.cpu_copies.push_back(cpu.copy_seconds());
    turns.loads.push_back(load_model(model, setting));
    turns.shares.push_back(turns.copies.back() / turns.loads.back().seconds);
  }
  return turns;
}

void print_heading(const char* directory) {
  std::printf("%s: in turns; GB/s are medians. Each case begins with the defaults\n", directory);
  std::printf("%3s %5s %4s %7s %5s %6s %5s %6s %6s %6s %6s %6s\n", "GB", "files", "to", "threads",
              "KiB", "window", "ring", "load", "pinned", "pread", "memcpy", "share");
}

void print_case(const Case& which) {
  std::printf("%3g %5llu ", which.gigabytes, static_cast<unsigned long long>(which.files));
}

/// `load`: one that used the setting.
void print_setting(const Setting& setting, const Load& load) {
  const RankReport& rank = load.report.ranks.front();
  std::printf(
      "%4s %7u %5llu %6llu %5llu ", setting.dtype == DTypePolicy::keep ? "keep" : "f16",
      rank.reader_threads, static_cast<unsigned long long>(rank.reader_chunk >> 10),
      static_cast<unsigned long long>(load.report.window / mib),
      static_cast<unsigned long long>((rank.peak_pinned_bytes - rank.packer_device_bytes) / mib));
}

void print_times(std::uint64_t bytes, const Turns& turns) {
  const auto rate = [&](const std::vector<double>& seconds) {
    return static_cast<double>(bytes) / 1e9 / median(seconds);
  };
  const auto loads = figures(turns.loads, [](const Load& load) { return load.seconds; });
  const auto [least, most] = std::minmax_element(turns.shares.begin(), turns.shares.end());
  std::printf("%6.1f %6.1f %6.1f %6.1f %6.2f (%.2f-%.2f, %zu times)\n", rate(loads),
              rate(turns.copies), rate(turns.cpu_reads), rate(turns.cpu_copies),
              median(turns.shares), *least, *most, turns.shares.size());
}

/// Milliseconds, medians: the phases that take some, and what the call takes afterwards, which is
/// to free.
void print_phases(const std::vector<Load>& loads) {
  const auto print = [&](std::string_view name, const auto& seconds_of) {
    const double middle = median(figures(loads, seconds_of)) * 1e3;
    if (middle >= 0.1) std::printf(" %s %.1f", std::string(name).c_str(), middle);
  };
  std::printf("          ms:");
  for (std::size_t i = 0; i < phase_count; ++i) {
    print(name(static_cast<Phase>(i)),
          [i](const Load& load) { return load.report.ranks.front().phases[i]; });
  }
  print("free",
        [](const Load& load) { return load.seconds - load.report.ranks.front().total_seconds; });
  std::printf("\n");
  std::fflush(stdout);
}

/// Whether the files fit, with room for their headers; says so if not.
bool fits(const std::string& directory, const Case& which) {
  const double free = static_cast<double>(std::filesystem::space(directory).available) / 1e9;
  if (free >= which.gigabytes + 0.1) return true;
  print_case(which);
  std::printf("not run: %.1f GB are free\n", free);
  return false;
}

void measure(const CachedModel& model, const Case& which, const Setting& setting,
             const device::SharedSession& session, const PinnedCopy& copy) {
  const Load first = load_model(model, setting);  // what is done once, too
  const RankReport& rank = first.report.ranks.front();
  const CpuCopies cpu(
      model.files(),
      device::allocate_pinned(session, std::uint64_t{2} * rank.reader_threads * rank.reader_chunk),
      rank.reader_threads, rank.reader_chunk);
  const Turns turns = take_turns(model, setting, repetitions(which), copy, cpu);
  for (const std::string& fallback : rank.fallbacks) {
    std::printf("fallback in the next line: %s\n", fallback.c_str());
  }
  print_case(which);
  print_setting(setting, first);
  print_times(model.tensor_bytes(), turns);
  print_phases(turns.loads);
}

/// False if it failed, which it says: later cases may be fine, since the system may have taken back
/// pages of one only.
bool try_case(const std::string& directory, const Case& which, const device::SharedSession& session,
              const PinnedCopy& copy) {
  if (!fits(directory, which)) return true;
  try {
    const CachedModel model(directory, which.gigabytes, which.files);
    for (const Setting& setting : which.settings) measure(model, which, setting, session, copy);
    return true;
  } catch (const std::exception& error) {
    print_case(which);
    std::printf("failed: %s\n", error.what());
    return false;
  }
}

std::vector<Case> cases(int argc, char** argv) {
  if (argc > 3) {
    const auto number = [&](int i) { return i < argc ? std::strtoull(argv[i], nullptr, 10) : 0; };
    const auto setting = [&](int i) { return static_cast<unsigned>(number(i)); };
    return {{std::strtod(argv[2], nullptr), number(3), {{setting(4), setting(5), setting(6)}}}};
  }
  return {{4, 8, sweep}, {16, 8}, {16, 1}, {1, 8}, {1, 1}, {4, 1}};  // what tells most comes first
}

}  // namespace

int main(int argc, char** argv) {
  const bool has_size = argc > 3 && std::strtod(argv[2], nullptr) > 0 && std::atoi(argv[3]) > 0;
  if (argc != 2 && !has_size) {
    std::fprintf(stderr,
                 "usage: gpu_load_bench DIRECTORY [GB FILES [THREADS [CHUNK_KIB [WINDOW_MIB]]]]\n");
    return 2;
  }
  try {
    const auto session = std::make_shared<const device::CudaSession>(device::Gpu::open(0));
    const PinnedCopy copy(session);
    print_heading(argv[1]);
    bool failed = false;
    for (const Case& each : cases(argc, argv)) {
      failed |= !try_case(argv[1], each, session, copy);
    }
    return failed ? 1 : 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_load_bench: %s\n", error.what());
    return 1;
  }
}
