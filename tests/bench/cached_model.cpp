#include "bench/cached_model.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <future>
#include <span>
#include <stdexcept>
#include <sys/mman.h>

#include "core/deadline.hpp"
#include "core/page_cache.hpp"
#include "core/process.hpp"
#include "format/layout_header.hpp"
#include "support/pseudo_random.hpp"

namespace safeshuffle::bench {
namespace {

constexpr std::uint64_t bytes_of_tensor = std::uint64_t{8} << 20;
constexpr unsigned most_writers = 8;

/// Of the bytes of a file, one in so many may be missing: a system under load evicts some.
constexpr std::uint64_t least_cached = 100;

/// A file whose header is written.
struct Begun {
  core::PosixFile file;
  std::vector<std::uint64_t> offsets;  ///< of the tensors
};

/// Not by FileWriter, which waits until all is on storage: here it is wanted in memory only.
Begun begin_file(const std::string& path, std::uint64_t tensors) {
  std::vector<format::TensorSpec> specs;
  for (std::uint64_t i = 0; i < tensors; ++i) {
    specs.push_back({std::filesystem::path(path).stem().string() + ".tensor" + std::to_string(i),
                     DType::BF16,
                     {bytes_of_tensor / 2 / 4096, 4096}});
  }
  const auto layout = format::layout_header(specs);
  Begun begun{core::PosixFile::create(path, path), layout.file_offset};
  begun.file.write(0, std::as_bytes(std::span(layout.bytes)));
  return begun;
}

/// Calls work(thread) on each of several threads, and waits.
template <class Work>
void on_threads(unsigned count, const Work& work) {
  std::vector<std::future<void>> threads;
  for (unsigned i = 0; i < count; ++i) {
    threads.push_back(std::async(std::launch::async, [&work, i] { work(i); }));
  }
  for (auto& thread : threads) thread.get();
}

/// Writes the tensors of all files with several threads, each at another file where there are some.
void fill(const std::vector<Begun>& files) {
  const auto content = testing::PseudoRandom(1).bytes(bytes_of_tensor);
  std::atomic<std::size_t> next{0};
  on_threads(std::min(core::available_cores(), most_writers), [&](unsigned) {
    for (std::size_t i = next++; i < files.size() * files[0].offsets.size(); i = next++) {
      const Begun& each = files[i % files.size()];
      each.file.write(each.offsets[i / files.size()], content);
    }
  });
}

std::uint64_t missing_bytes(const core::PosixFile& file, std::uint64_t size) {
  const auto cached = core::cached_bytes(file.descriptor(), 0, size);
  if (!cached) throw std::runtime_error("the system does not say what is cached");
  return size - *cached;
}

void require_cached(const std::string& path) {
  const auto file = core::PosixFile::open(path);
  const std::uint64_t size = file.identity().size;
  if (missing_bytes(file, size) == 0) return;
  std::vector<std::byte> buffer(bytes_of_tensor);
  for (std::uint64_t at = 0; at < size; at += buffer.size()) {
    file.read(at, std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), size - at)));
  }
  const std::uint64_t missing = missing_bytes(file, size);
  if (missing > size / least_cached) {
    throw std::runtime_error(path + ": " + std::to_string(missing) + " bytes are not cached");
  }
}

std::shared_ptr<const std::byte> map(const core::PosixFile& file, std::uint64_t bytes) {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, file.descriptor(), 0);
  if (memory == MAP_FAILED) throw std::runtime_error("cannot map a file");
  return {static_cast<const std::byte*>(memory),
          [memory, bytes](auto) { ::munmap(memory, bytes); }};
}

}  // namespace

CachedModel::CachedModel(const std::string& directory, double gigabytes, std::uint64_t files)
    : directory_(directory), files_(files) {
  const auto wanted = static_cast<std::uint64_t>(gigabytes * 1e9);
  const std::uint64_t tensors = std::max(std::uint64_t{1}, wanted / files / bytes_of_tensor);
  {
    std::vector<Begun> begun;
    for (const std::string& file : this->files()) begun.push_back(begin_file(file, tensors));
    fill(begun);
  }
  for (const std::string& file : this->files()) require_cached(file);
  bytes_ = files * tensors * bytes_of_tensor;
}

std::vector<std::string> CachedModel::files() const {
  std::vector<std::string> paths;
  for (std::uint64_t i = 0; i < files_; ++i) {
    paths.push_back(directory_.file("model-" + std::to_string(i) + ".safetensors"));
  }
  return paths;
}

CpuCopies::CpuCopies(const std::vector<std::string>& files, std::shared_ptr<std::byte> slots,
                     unsigned threads, std::uint64_t chunk)
    : slots_(std::move(slots)), threads_(threads), chunk_(chunk) {
  for (const std::string& path : files) {
    auto file = core::PosixFile::open(path);
    const std::uint64_t bytes = file.identity().size;
    auto memory = map(file, bytes);
    files_.push_back({std::move(file), std::move(memory), bytes});
  }
  for (const Mapped& file : files_) {
    for (std::uint64_t at = 0; at < file.bytes; at += chunk) {
      blocks_.push_back({&file, at, std::min(chunk, file.bytes - at)});
    }
  }
}

double CpuCopies::read_seconds() const {
  return seconds([](const Block& block, std::byte* slot) {
    block.file->file.read(block.offset, {slot, block.bytes});
  });
}

double CpuCopies::copy_seconds() const {
  return seconds([](const Block& block, std::byte* slot) {
    std::memcpy(slot, block.file->memory.get() + block.offset, block.bytes);
  });
}

template <class Move>
double CpuCopies::seconds(const Move& move) const {
  std::atomic<std::size_t> next{0};
  const auto start = core::Clock::now();
  on_threads(threads_, [&](unsigned thread) {
    std::uint64_t slot = std::uint64_t{thread} * 2;
    for (std::size_t i = next++; i < blocks_.size(); i = next++, slot ^= 1) {
      move(blocks_[i], slots_.get() + slot * chunk_);
    }
  });
  return core::seconds_since(start);
}

}  // namespace safeshuffle::bench
