#include "core/posix_file.hpp"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <limits>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "safeshuffle/error.hpp"

namespace safeshuffle::core {
namespace {

/// Repeats a system call while signals interrupt it.
template <typename Call>
auto uninterrupted(Call call) {
  for (;;) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

int open_descriptor(const std::string& path, int flags, const std::string& shown_as,
                    const char* action, mode_t mode = 0) {
  // A path is passed on as a C string: the part after a NUL would silently be dropped.
  if (path.find('\0') != std::string::npos) raise_errno(EINVAL, shown_as, action);
  const int descriptor =
      uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, mode); });
  if (descriptor == -1) raise_errno(errno, shown_as, action);
  return descriptor;
}

/// `offset` as the system takes it; beyond its range no file can reach.
off_t system_offset(std::uint64_t offset, const std::string& path, const char* action) {
  constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
  if (offset > largest) raise_errno(EFBIG, path, action, offset);
  return static_cast<off_t>(offset);
}

}  // namespace

void raise_errno(int code, const std::string& path, const std::string& action,
                 std::optional<std::uint64_t> offset) {
  throw IoError(ErrorRecord{.code = code,
                            .file = path,
                            .tensor = {},
                            .offset = offset,
                            .cause = action + ": " + std::generic_category().message(code)});
}

PosixFile::PosixFile(int descriptor, std::string path) noexcept
    : descriptor_(descriptor), path_(std::move(path)) {}

PosixFile::PosixFile(PosixFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

PosixFile& PosixFile::operator=(PosixFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  return *this;
}

PosixFile::~PosixFile() {
  if (descriptor_ != -1) ::close(descriptor_);
}

PosixFile PosixFile::open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must fail the check below instead of waiting for a writer.
  PosixFile file(open_descriptor(path, O_RDONLY | O_NONBLOCK, path, "cannot open"), path);
  static_cast<void>(file.identity());
  return file;
}

PosixFile PosixFile::create(const std::string& path, std::string shown_as, unsigned mode) {
  const int descriptor =
      open_descriptor(path, O_WRONLY | O_CREAT | O_EXCL, shown_as, "cannot create", mode);
  return PosixFile(descriptor, std::move(shown_as));
}

void PosixFile::read(std::uint64_t offset, std::span<std::byte> destination) const {
  while (!destination.empty()) {
    const off_t at = system_offset(offset, path_, "cannot read");
    const ssize_t count = uninterrupted(
        [&] { return ::pread(descriptor_, destination.data(), destination.size(), at); });
    if (count == -1) raise_errno(errno, path_, "cannot read", offset);
    if (count == 0) raise_errno(EIO, path_, "the file ends early", offset);
    destination = destination.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

void PosixFile::write(std::uint64_t offset, std::span<const std::byte> data) const {
  while (!data.empty()) {
    const off_t at = system_offset(offset, path_, "cannot write");
    const ssize_t count =
        uninterrupted([&] { return ::pwrite(descriptor_, data.data(), data.size(), at); });
    if (count == -1) raise_errno(errno, path_, "cannot write", offset);
    data = data.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

void PosixFile::resize(std::uint64_t size) const {
  const off_t end = system_offset(size, path_, "cannot extend");
  if (uninterrupted([&] { return ::ftruncate(descriptor_, end); }) == -1) {
    raise_errno(errno, path_, "cannot extend", size);
  }
}

void PosixFile::sync() const {
  if (uninterrupted([&] { return ::fsync(descriptor_); }) == -1) {
    raise_errno(errno, path_, "cannot flush to storage");
  }
}

void rename_file(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    raise_errno(errno, to, "cannot rename the finished file to this name");
  }
}

void sync_directory(const std::string& directory) {
  const int descriptor =
      open_descriptor(directory, O_RDONLY | O_DIRECTORY, directory, "cannot open");
  const int result = uninterrupted([&] { return ::fsync(descriptor); });
  const int code = errno;
  ::close(descriptor);
  // EINVAL: the filesystem has nothing to sync for a directory.
  if (result == -1 && code != EINVAL) raise_errno(code, directory, "cannot flush to storage");
}

std::string read_text(const std::string& path, std::uint64_t limit) {
  const PosixFile file = PosixFile::open(path);
  const std::uint64_t size = file.identity().size;
  if (size > limit) raise_errno(EFBIG, path, "cannot read as text");
  std::string text(size, '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace safeshuffle::core
