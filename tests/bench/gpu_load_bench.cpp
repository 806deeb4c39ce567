// The speed of a load onto one GPU, as a share of a plain copy from page-locked memory to the GPU,
// taken in turns on the same bytes. The files are in the page cache, or in tmpfs, which is checked
// page by page. Usage: gpu_load_bench DIRECTORY [GB FILES [THREADS]]...
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "safeshuffle/loader.hpp"

#include "core/deadline.hpp"
#include "core/posix_file.hpp"
#include "device/cuda/call.hpp"
#include "device/cuda/session.hpp"
#include "format/writer.hpp"
#include "support/pseudo_random.hpp"

using namespace safeshuffle;

namespace {

constexpr std::uint64_t gigabyte = 1'000'000'000;
constexpr std::uint64_t tensor_bytes = std::uint64_t{32} << 20;
constexpr std::uint64_t copy_bytes = std::uint64_t{256} << 20;  // of one copy; the buffer is reused
constexpr std::uint64_t read_bytes = std::uint64_t{8} << 20;

struct Case {
  std::uint64_t gigabytes = 1;
  std::uint64_t files = 1;
  unsigned threads = 0;
};

/// More where they are cheap.
int repetitions(const Case& which) {
  return which.gigabytes > 8 ? 3 : 7;
}

/// Files of equal tensors, together as many bytes as asked for.
class Model {
 public:
  Model(const std::string& directory, const Case& which)
      : directory_(directory + "/gpu_load_bench") {
    std::filesystem::remove_all(directory_);  // of a run that was killed
    std::filesystem::create_directories(directory_);
    const std::uint64_t tensors =
        std::max(std::uint64_t{1}, which.gigabytes * gigabyte / which.files / tensor_bytes);
    for (std::uint64_t file = 0; file < which.files; ++file) write(file, tensors);
    bytes_ = which.files * tensors * tensor_bytes;
  }
  ~Model() { std::filesystem::remove_all(directory_); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const std::string& path() const { return directory_; }
  std::uint64_t bytes() const { return bytes_; }

  /// Reads all files, then requires all of their pages in memory.
  void warm() const {
    for (const std::string& path : paths_) {
      read(path);
      require_resident(path);
    }
  }

 private:
  void write(std::uint64_t number, std::uint64_t tensors) {
    std::vector<format::TensorSpec> specs;
    for (std::uint64_t i = 0; i < tensors; ++i) {
      specs.push_back({"file" + std::to_string(number) + ".tensor" + std::to_string(i),
                       DType::BF16,
                       {tensor_bytes / 2 / 4096, 4096}});
    }
    paths_.push_back(directory_ + "/model-" + std::to_string(number) + ".safetensors");
    // Not by FileWriter, which waits until all is on storage: here it is wanted in memory only.
    const auto layout = format::layout_header(specs);
    const auto file = core::PosixFile::create(paths_.back(), paths_.back());
    file.write(0, std::as_bytes(std::span(layout.bytes)));
    for (const std::uint64_t offset : layout.file_offset) file.write(offset, content_);
  }

  static void read(const std::string& path) {
    const core::PosixFile file = core::PosixFile::open(path);
    std::vector<std::byte> buffer(read_bytes);
    const std::uint64_t size = std::filesystem::file_size(path);
    for (std::uint64_t at = 0; at < size; at += buffer.size()) {
      file.read(at, std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), size - at)));
    }
  }

  static void require_resident(const std::string& path) {
    const std::uint64_t size = std::filesystem::file_size(path);
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    void* const mapping = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
    ::close(descriptor);
    if (mapping == MAP_FAILED) throw std::runtime_error("cannot map " + path);
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> pages((size + page - 1) / page);
    ::mincore(mapping, size, pages.data());
    ::munmap(mapping, size);
    const auto absent =
        std::count_if(pages.begin(), pages.end(), [](auto p) { return (p & 1) == 0; });
    if (absent != 0)
      throw std::runtime_error(path + ": " + std::to_string(absent) + " pages not cached");
  }

  std::string directory_;
  std::vector<std::string> paths_;
  std::vector<std::byte> content_ = testing::PseudoRandom(1).bytes(tensor_bytes);
  std::uint64_t bytes_ = 0;
};

/// A plain copy of as many bytes from page-locked memory.
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

double load_seconds(const Model& model, const Case& which) {
  Options options;
  options.threads = which.threads;
  return load(model.path(), self(Device::cuda()), options).report().seconds;
}

double median(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(const std::string& directory, const Case& which, const PinnedCopy& copy) {
  const Model model(directory, which);
  model.warm();
  load_seconds(model, which);  // what is done once
  std::vector<double> loads;
  std::vector<double> copies;
  std::vector<double> shares;
  for (int i = 0; i < repetitions(which); ++i) {
    copies.push_back(copy.seconds(model.bytes()));
    loads.push_back(load_seconds(model, which));
    shares.push_back(copies.back() / loads.back());
  }
  const double bytes = static_cast<double>(model.bytes()) / 1e9;
  const double share = median(shares);
  std::printf("%-24s %5llu %6llu %8u %10.1f %10.1f %7.2f (%.2f-%.2f)\n", directory.c_str(),
              static_cast<unsigned long long>(which.gigabytes),
              static_cast<unsigned long long>(which.files), which.threads, bytes / median(loads),
              bytes / median(copies), share, shares.front(), shares.back());
  std::fflush(stdout);
}

std::vector<Case> cases(int argc, char** argv) {
  if (argc > 3) {
    const auto number = [&](int i) { return i < argc ? std::strtoull(argv[i], nullptr, 10) : 0; };
    return {{number(2), number(3), static_cast<unsigned>(number(4))}};
  }
  return {{1, 1}, {1, 8}, {4, 1}, {4, 8}, {16, 1}, {16, 8}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: gpu_load_bench DIRECTORY [GB FILES [THREADS]]\n");
    return 2;
  }
  try {
    const PinnedCopy copy;
    std::printf("in turns, 7 times, 16 GB 3 times; GB/s are medians; threads 0: the default\n");
    std::printf("%-24s %5s %6s %8s %10s %10s %7s\n", "directory", "GB", "files", "threads", "load",
                "copy", "share");
    for (const Case& each : cases(argc, argv)) measure(argv[1], each, copy);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_load_bench: %s\n", error.what());
    return 1;
  }
}
