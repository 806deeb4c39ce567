// Files with known contents, and memory to read them into.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include "safeshuffle/metadata.hpp"

#include "core/file_identity.hpp"

namespace safeshuffle::testing {

/// A directory that is removed with everything in it.
class ScratchDirectory {
 public:
  explicit ScratchDirectory(
      const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string pattern = (parent / "safeshuffle-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make " + pattern);
    path_ = pattern;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const std::filesystem::path& path() const noexcept { return path_; }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

/// The byte at a place of a sample file: differs between files, pages and neighbours.
inline std::byte sample_byte(std::uint64_t file, std::uint64_t offset) {
  return static_cast<std::byte>((offset * 31 + (offset >> 12) * 7 + file * 101) & 0xff);
}

/// The current description of the file.
inline FileInfo describe_file(const std::string& path) {
  const core::FileIdentity identity = core::identify(path);
  FileInfo info;
  info.path = path;
  info.size = identity.size;
  info.modified_ns = identity.modified_ns;
  info.inode = identity.inode;
  return info;
}

/// Writes sample file number `file` and describes it.
inline FileInfo write_sample(const std::string& path, std::uint64_t file, std::uint64_t bytes) {
  std::string text(bytes, '\0');
  for (std::uint64_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(sample_byte(file, i));
  std::ofstream(path, std::ios::binary) << text;
  return describe_file(path);
}

/// Zeroed memory with a chosen address modulo 4096.
class AlignedMemory {
 public:
  explicit AlignedMemory(std::size_t bytes, std::size_t remainder = 0)
      : memory_(static_cast<std::byte*>(::operator new(bytes + 4096, alignment))),
        span_(memory_.get() + remainder, bytes) {
    std::fill(span_.begin(), span_.end(), std::byte{0});
  }
  std::byte* data() const { return span_.data(); }
  std::span<std::byte> span() const { return span_; }

 private:
  static constexpr std::align_val_t alignment{4096};
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, alignment); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::span<std::byte> span_;
};

/// Whether `data` is what sample file `file` holds from `offset` on.
inline bool is_sample(std::span<const std::byte> data, std::uint64_t file, std::uint64_t offset) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (data[i] != sample_byte(file, offset + i)) return false;
  }
  return true;
}

}  // namespace safeshuffle::testing
