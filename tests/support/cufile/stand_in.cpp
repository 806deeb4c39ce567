// A library in the place of cuFile: it reads by pread and writes into the memory of simulated GPUs.
// A test finds it by LD_LIBRARY_PATH, as programs find the real one. What it does wrong is told by
// the environment variable CUFILE_STAND_IN, which is read at every call: words "key=value",
// separated by spaces:
//
//   open=N      cuFileDriverOpen fails with this code          (default: 0, it succeeds)
//   file=N      cuFileHandleRegister fails
//   memory=N    cuFileBufRegister fails
//   read=N      cuFileRead fails: with -1 and this errno, or with this code if it is above 5000
//   from=N      the first offset in the file that `read` is about (default: 0)
//   at_most=N   bytes that one call reads                      (default: all)
//   nvfs=0      the kernel driver nvidia-fs is not loaded
//   log=FILE    where each call is noted: one line of its name, and for those that read also
//   offset,
//               bytes and whether the memory was registered
//
// What the program must not do ends it: reading into memory of a GPU that is not current, or with a
// file that is not registered, or was not opened with O_DIRECT; and anything unaligned, because
// that is to go by staging.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include "device/cuda/cufile_api.hpp"

using namespace safeshuffle::device;

namespace {

constexpr std::int64_t first_code = 5000;
constexpr std::uintptr_t page = 4096;

[[noreturn]] void forbid(const std::string& text) {
  std::fprintf(stderr, "cuFile's stand-in: %s\n", text.c_str());
  std::abort();
}

void require(bool condition, const std::string& otherwise) {
  if (!condition) forbid(otherwise);
}

std::string setting(const std::string& key) {
  const char* const settings = std::getenv("CUFILE_STAND_IN");
  std::istringstream words(settings == nullptr ? "" : settings);
  for (std::string word; words >> word;) {
    if (word.starts_with(key + "=")) return word.substr(key.size() + 1);
  }
  return {};
}

std::int64_t number(const std::string& key, std::int64_t otherwise) {
  const std::string value = setting(key);
  return value.empty() ? otherwise : std::stoll(value);
}

struct State {
  std::mutex mutex;
  bool open = false;
  std::map<std::uintptr_t, std::size_t> memory;  // registered, by address
  std::map<int, std::uintptr_t> handles;         // by descriptor

  /// Whether [base + offset, … + bytes) is registered as memory that begins at `base`. Memory
  /// within what is registered must be named by its beginning.
  bool is_registered(std::uintptr_t base, std::uintptr_t offset, std::size_t bytes) {
    const std::scoped_lock lock(mutex);
    auto after = memory.upper_bound(base);
    if (after == memory.begin()) return false;
    const auto& [begin, size] = *std::prev(after);
    if (base - begin >= size) return false;
    require(base == begin, "registered memory is not named by its beginning");
    require(offset + bytes <= size, "reading past the end of registered memory");
    return true;
  }
};

// Never destroyed, as programs do not close the driver.
State& state() {
  static auto* const all = new State;
  return *all;
}

void note(const std::string& line) {
  const std::string file = setting("log");
  const std::scoped_lock lock(state().mutex);
  if (!file.empty()) std::ofstream(file, std::ios::app) << line << '\n';
}

/// The failure of `key` that was asked for, if any.
cufile::Status status_of(const std::string& key) {
  return {static_cast<int>(number(key, 0)), CUDA_SUCCESS};
}

/// Writes into device memory, as the simulation of the GPU lets other libraries do.
void write_to_gpu(void* to, const void* from, std::size_t bytes) {
  using Write = bool(void*, const void*, std::size_t);
  static auto* const write = reinterpret_cast<Write*>(::dlsym(RTLD_DEFAULT, "simulated_gpu_write"));
  require(write != nullptr, "the program has no simulated GPU");
  require(write(to, from, bytes), "cannot write into device memory");
}

int descriptor_of(cufile::FileHandle handle) {
  const std::scoped_lock lock(state().mutex);
  for (const auto& [descriptor, known] : state().handles) {
    if (known == reinterpret_cast<std::uintptr_t>(handle)) return descriptor;
  }
  forbid("a file that is not registered");
}

ssize_t fail(std::int64_t code) {
  if (code > first_code) return -code;
  errno = static_cast<int>(code);
  return -1;
}

/// pread from the page cache: it takes any memory, and works on every filesystem.
ssize_t read_file(int descriptor, std::vector<std::byte>& to, off_t offset) {
  const int copy = ::open(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), O_RDONLY);
  const ssize_t result = ::pread(copy, to.data(), to.size(), offset);
  ::close(copy);
  return result;
}

}  // namespace

extern "C" {

cufile::Status cuFileDriverOpen() {
  note("cuFileDriverOpen");
  const cufile::Status status = status_of("open");
  require(!state().open, "the driver is opened twice");
  state().open = status.code == 0;
  return status;
}

cufile::Status cuFileDriverGetProperties(cufile::Properties* properties) {
  properties->nvfs.major_version = number("nvfs", 2) == 0 ? 0 : 2;
  return {};
}

cufile::Status cuFileHandleRegister(cufile::FileHandle* handle,
                                    cufile::FileDescription* description) {
  note("cuFileHandleRegister");
  require(state().open, "the driver is not open");
  const int descriptor = description->handle.descriptor;
  require(description->type == 1, "not a file descriptor");
  require((::fcntl(descriptor, F_GETFL) & O_DIRECT) != 0, "a file without O_DIRECT");
  const cufile::Status status = status_of("file");
  if (status.code != 0) return status;
  static std::uintptr_t last = 0;
  const std::scoped_lock lock(state().mutex);
  const auto [entry, is_new] = state().handles.emplace(descriptor, ++last);
  require(is_new, "a descriptor is registered twice");
  *handle = reinterpret_cast<cufile::FileHandle>(entry->second);
  return {};
}

void cuFileHandleDeregister(cufile::FileHandle handle) {
  note("cuFileHandleDeregister");
  const int descriptor = descriptor_of(handle);
  require(::fcntl(descriptor, F_GETFL) != -1, "a file was closed while it was registered");
  const std::scoped_lock lock(state().mutex);
  state().handles.erase(descriptor);
}

cufile::Status cuFileBufRegister(const void* memory, std::size_t bytes, int) {
  note("cuFileBufRegister");
  const cufile::Status status = status_of("memory");
  if (status.code != 0) return status;
  const std::scoped_lock lock(state().mutex);
  state().memory.emplace(reinterpret_cast<std::uintptr_t>(memory), bytes);
  return {};
}

cufile::Status cuFileBufDeregister(const void* memory) {
  note("cuFileBufDeregister");
  const std::scoped_lock lock(state().mutex);
  const bool known = state().memory.erase(reinterpret_cast<std::uintptr_t>(memory)) == 1;
  require(known, "memory that is not registered");
  return {};
}

ssize_t cuFileRead(cufile::FileHandle handle, void* memory, std::size_t bytes, off_t file_offset,
                   off_t memory_offset) {
  const auto base = reinterpret_cast<std::uintptr_t>(memory);
  const auto offset = static_cast<std::uintptr_t>(memory_offset);
  const int descriptor = descriptor_of(handle);
  const bool registered = state().is_registered(base, offset, bytes);
  note("cuFileRead " + std::to_string(file_offset) + " " + std::to_string(bytes) +
       (registered ? " registered" : " unregistered"));
  require((static_cast<std::uintptr_t>(file_offset) | bytes | (base + offset)) % page == 0,
          "a read is not aligned");
  const std::int64_t failure = number("read", 0);
  if (failure != 0 && file_offset >= number("from", 0)) return fail(failure);
  const auto most = static_cast<std::size_t>(number("at_most", INT64_MAX));
  std::vector<std::byte> data(std::min(bytes, most));
  const ssize_t result = read_file(descriptor, data, file_offset);
  if (result > 0) {
    write_to_gpu(static_cast<std::byte*>(memory) + offset, data.data(),
                 static_cast<std::size_t>(result));
  }
  return result;
}

}  // extern "C"
