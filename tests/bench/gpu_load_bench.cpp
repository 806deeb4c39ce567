// The speed of a load onto one GPU, as a share of a plain copy from pinned memory to the GPU,
// taken in turns on as many bytes. The files have just been written and are in the page cache, or
// in tmpfs, which is checked page by page. What does not fit into the directory is not run, which
// the table says. Usage: gpu_load_bench DIRECTORY [GB FILES [THREADS [CHUNK_MIB [WINDOW_MIB]]]].
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <filesystem>
#include <future>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "safeshuffle/loader.hpp"

#include "core/deadline.hpp"
#include "core/posix_file.hpp"
#include "core/process.hpp"
#include "device/cuda/call.hpp"
#include "device/cuda/session.hpp"
#include "format/layout_header.hpp"
#include "support/pseudo_random.hpp"

using namespace safeshuffle;

namespace {

constexpr std::uint64_t gigabyte = 1'000'000'000;
constexpr std::uint64_t tensor_bytes = std::uint64_t{8} << 20;
constexpr std::uint64_t copy_bytes = std::uint64_t{256} << 20;  // of one copy; the buffer is reused
constexpr unsigned most_writers = 8;

/// How it is loaded; 0: the default.
struct Setting {
  unsigned threads = 0;
  unsigned chunk_mib = 0;
  unsigned window_mib = 0;
  bool maps = false;
};

/// One model, loaded in several ways.
struct Case {
  std::uint64_t gigabytes = 1;
  std::uint64_t files = 1;
  std::vector<Setting> settings{{}};
};

/// By threads, chunk and window: what the defaults could be; and from mapped files. The ring is 64
/// MiB at most, whatever threads and chunk are, so that page-locking it costs about the same in
/// each.
const std::vector<Setting> sweep{
    {},           {4, 2, 256},  {8, 2, 256},    {12, 2, 256}, {16, 2, 256},
    {12, 1, 256}, {12, 4, 256}, {16, 4, 256},   {12, 2, 64},  {12, 2, 128},
    {12, 2, 512}, {16, 2, 512}, {0, 0, 0, true}};

/// More where they are cheap.
int repetitions(const Case& which) {
  return which.gigabytes > 8 ? 3 : 5;
}

/// A directory that is there as long as its owner.
class Directory {
 public:
  explicit Directory(std::string path) : path_(std::move(path)) {
    std::filesystem::remove_all(path_);  // of a run that was killed
    std::filesystem::create_directories(path_);
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// A file whose header is written.
struct Begun {
  std::string path;
  core::PosixFile file;
  std::vector<std::uint64_t> offsets;  ///< of the tensors
};

/// Pages of a cached file that may be missing, in a thousand: a system under load evicts some.
constexpr std::ptrdiff_t most_missing = 10;

/// Not by FileWriter, which waits until all is on storage: here it is wanted in memory only.
Begun begin_file(const std::string& directory, std::uint64_t number, std::uint64_t tensors) {
  std::vector<format::TensorSpec> specs;
  for (std::uint64_t i = 0; i < tensors; ++i) {
    specs.push_back({"file" + std::to_string(number) + ".tensor" + std::to_string(i),
                     DType::BF16,
                     {tensor_bytes / 2 / 4096, 4096}});
  }
  const std::string path = directory + "/model-" + std::to_string(number) + ".safetensors";
  const auto layout = format::layout_header(specs);
  Begun begun{path, core::PosixFile::create(path, path), layout.file_offset};
  begun.file.write(0, std::as_bytes(std::span(layout.bytes)));
  return begun;
}

/// Writes the tensors of all files with several threads, each at another file where there are some.
void fill(const std::vector<Begun>& files) {
  const auto content = testing::PseudoRandom(1).bytes(tensor_bytes);
  std::atomic<std::size_t> next{0};
  const auto write = [&] {
    for (std::size_t i = next++; i < files.size() * files[0].offsets.size(); i = next++) {
      const Begun& each = files[i % files.size()];
      each.file.write(each.offsets[i / files.size()], content);
    }
  };
  std::vector<std::future<void>> writers(std::min(core::available_cores(), most_writers));
  for (auto& writer : writers) writer = std::async(std::launch::async, write);
  for (auto& writer : writers) writer.get();
}

/// Files of equal tensors, together as many bytes as asked for, all of them in memory.
class Model {
 public:
  Model(const std::string& directory, const Case& which)
      : directory_(directory + "/gpu_load_bench") {
    const std::uint64_t tensors =
        std::max(std::uint64_t{1}, which.gigabytes * gigabyte / which.files / tensor_bytes);
    std::vector<Begun> files;
    for (std::uint64_t i = 0; i < which.files; ++i) {
      files.push_back(begin_file(directory_.path(), i, tensors));
    }
    fill(files);
    for (const Begun& each : files) require_resident(each.path);
    bytes_ = which.files * tensors * tensor_bytes;
  }

  const std::string& path() const { return directory_.path(); }
  std::uint64_t bytes() const { return bytes_; }

 private:
  static void require_resident(const std::string& path) {
    if (missing_pages(path) == 0) return;
    read_all(path);
    const std::ptrdiff_t missing = missing_pages(path);
    const auto pages = static_cast<std::ptrdiff_t>(std::filesystem::file_size(path) / page_size());
    if (missing * 1000 > pages * most_missing) {
      throw std::runtime_error(path + ": " + std::to_string(missing) + " pages not cached");
    }
  }

  static std::uint64_t page_size() { return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)); }

  static void read_all(const std::string& path) {
    const auto file = core::PosixFile::open(path);
    std::vector<std::byte> buffer(tensor_bytes);
    const std::uint64_t size = std::filesystem::file_size(path);
    for (std::uint64_t at = 0; at < size; at += buffer.size()) {
      file.read(at, std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), size - at)));
    }
  }

  static std::ptrdiff_t missing_pages(const std::string& path) {
    const std::uint64_t size = std::filesystem::file_size(path);
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    void* const mapping = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
    ::close(descriptor);
    if (mapping == MAP_FAILED) throw std::runtime_error("cannot map " + path);
    std::vector<unsigned char> pages((size + page_size() - 1) / page_size());
    ::mincore(mapping, size, pages.data());
    ::munmap(mapping, size);
    return std::count_if(pages.begin(), pages.end(), [](auto p) { return (p & 1) == 0; });
  }

  Directory directory_;
  std::uint64_t bytes_ = 0;
};

/// A plain copy of as many bytes from pinned memory.
class PinnedCopy {
 public:
  PinnedCopy() : session_(std::make_shared<const device::CudaSession>(device::Gpu::open(0))) {
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

/// Of the whole call, with the freeing of what only the load needs; not of the group, and not with
/// the freeing of the tensors.
double load_seconds(const Model& model, const Setting& setting) {
  constexpr std::uint64_t mib = std::uint64_t{1} << 20;
  Options options;
  if (setting.maps) options.io = IoEngine::mmap;
  options.threads = setting.threads;
  options.chunk = setting.chunk_mib * mib;
  if (setting.window_mib != 0) options.plan.window = setting.window_mib * mib;
  const Communicator comm = self(Device::cuda());
  const auto start = core::Clock::now();
  const TensorSet loaded = load(model.path(), comm, options);
  const double seconds = core::seconds_since(start);
  for (const std::string& fallback : loaded.report().ranks[0].fallbacks) {
    std::printf("fallback in the next line: %s\n", fallback.c_str());
  }
  return seconds;
}

double median(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Seconds of each repetition.
struct Times {
  std::vector<double> loads;
  std::vector<double> copies;
  std::vector<double> shares;
};

Times take_turns(const Model& model, const Setting& setting, int repetitions,
                 const PinnedCopy& copy) {
  load_seconds(model, setting);  // what is done once
  Times times;
  for (int i = 0; i < repetitions; ++i) {
    times.copies.push_back(copy.seconds(model.bytes()));
    times.loads.push_back(load_seconds(model, setting));
    times.shares.push_back(times.copies.back() / times.loads.back());
  }
  return times;
}

void print_case(const Case& which) {
  std::printf("%5llu %6llu ", static_cast<unsigned long long>(which.gigabytes),
              static_cast<unsigned long long>(which.files));
}

void print_times(const Setting& setting, std::uint64_t bytes, Times times) {
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  const double share = median(times.shares);
  std::printf("%5s %8u %6u %7u %6zu %10.1f %10.1f %7.2f (%.2f-%.2f)\n",
              setting.maps ? "mmap" : "auto", setting.threads, setting.chunk_mib,
              setting.window_mib, times.loads.size(), gigabytes / median(times.loads),
              gigabytes / median(times.copies), share, times.shares.front(), times.shares.back());
  std::fflush(stdout);
}

/// Whether the files fit, with room for their headers; says so if not.
bool fits(const std::string& directory, const Case& which) {
  const std::uint64_t free = std::filesystem::space(directory).available;
  if (free >= which.gigabytes * gigabyte + gigabyte / 10) return true;
  print_case(which);
  std::printf("not run: %.1f GB are free\n", static_cast<double>(free) / 1e9);
  return false;
}

void measure(const std::string& directory, const Case& which, const PinnedCopy& copy) {
  if (!fits(directory, which)) return;
  const Model model(directory, which);
  for (const Setting& setting : which.settings) {
    const Times times = take_turns(model, setting, repetitions(which), copy);
    print_case(which);
    print_times(setting, model.bytes(), times);
  }
}

std::vector<Case> cases(int argc, char** argv) {
  if (argc > 3) {
    const auto number = [&](int i) { return i < argc ? std::strtoull(argv[i], nullptr, 10) : 0; };
    const auto setting = [&](int i) { return static_cast<unsigned>(number(i)); };
    return {{number(2), number(3), {{setting(4), setting(5), setting(6)}}}};
  }
  return {{1, 1}, {1, 8}, {4, 1}, {4, 8, sweep}, {16, 1}, {16, 8}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: gpu_load_bench DIRECTORY [GB FILES [THREADS [CHUNK_MIB [WINDOW_MIB]]]]\n");
    return 2;
  }
  try {
    const PinnedCopy copy;
    std::printf("%s: load and copy in turns; GB/s are medians; 0: the default\n", argv[1]);
    std::printf("%5s %6s %5s %8s %6s %7s %6s %10s %10s %7s\n", "GB", "files", "io", "threads",
                "chunk", "window", "times", "load", "copy", "share");
    for (const Case& each : cases(argc, argv)) measure(argv[1], each, copy);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_load_bench: %s\n", error.what());
    return 1;
  }
}
