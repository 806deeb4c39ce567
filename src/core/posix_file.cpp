#include "core/posix_file.hpp"

#include <cerrno>
#include <fcntl.h>
#include <limits>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "safeshuffle/error.hpp"

#include "core/system_call.hpp"

namespace safeshuffle::core {
namespace {

Descriptor open_descriptor(const std::string& path, int flags, const std::string& shown_as,
                           const char* action) {
  constexpr mode_t mode = 0666;  // of new files, less the umask
  // The path is passed as a C string: the part after a NUL would silently be dropped.
  if (path.find('\0') != std::string::npos) raise_errno(EINVAL, shown_as, action);
  Descriptor descriptor(
      uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, mode); }));
  if (!descriptor) raise_errno(errno, shown_as, action);
  return descriptor;
}

/// `offset` in the type of the system calls; no file extends beyond its range.
off_t system_offset(std::uint64_t offset, const std::string& path, const char* action) {
  constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
  if (offset > largest) raise_errno(EFBIG, path, action, offset);
  return static_cast<off_t>(offset);
}

/// Of the whole file. The lock belongs to the open file, not to the process: closing another
/// descriptor of the same file does not end it, and two in one process exclude each other.
int lock_call(int descriptor, int command, short type, struct flock& lock) {
  lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return uninterrupted([&] { return ::fcntl(descriptor, command, &lock); });
}

}  // namespace

PosixFile::PosixFile(Descriptor descriptor, std::string path) noexcept
    : descriptor_(std::move(descriptor)), path_(std::move(path)) {}

PosixFile PosixFile::open(const std::string& path, int flags) {
  // O_NONBLOCK: opening a FIFO must fail the check below instead of waiting for a writer.
  PosixFile file(open_descriptor(path, O_RDONLY | O_NONBLOCK | flags, path, "cannot open"), path);
  file.identity_ = file.identity();
  return file;
}

PosixFile PosixFile::create(const std::string& path, std::string shown_as) {
  Descriptor descriptor =
      open_descriptor(path, O_WRONLY | O_CREAT | O_EXCL, shown_as, "cannot create");
  return PosixFile(std::move(descriptor), std::move(shown_as));
}

PosixFile PosixFile::open_or_create(const std::string& path) {
  PosixFile file(
      open_descriptor(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, path, "cannot create"),
      path);
  static_cast<void>(file.identity());
  return file;
}

bool PosixFile::has_name(const std::string& path) const noexcept {
  struct stat mine {};
  struct stat named {};
  return ::fstat(descriptor_.value(), &mine) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         mine.st_dev == named.st_dev && mine.st_ino == named.st_ino;
}

void PosixFile::read(std::uint64_t offset, std::span<std::byte> destination) const {
  while (!destination.empty()) {
    const std::size_t count = read_some(offset, destination);
    if (count == 0) raise_ended_early(path_, offset);
    destination = destination.subspan(count);
    offset += count;
  }
}

std::size_t PosixFile::read_some(std::uint64_t offset, std::span<std::byte> destination) const {
  const off_t at = system_offset(offset, path_, "cannot read");
  const ssize_t count = uninterrupted(
      [&] { return ::pread(descriptor_.value(), destination.data(), destination.size(), at); });
  if (count == -1) raise_errno(errno, path_, "cannot read", offset);
  return static_cast<std::size_t>(count);
}

void PosixFile::write(std::uint64_t offset, std::span<const std::byte> data) const {
  while (!data.empty()) {
    const off_t at = system_offset(offset, path_, "cannot write");
    const ssize_t count =
        uninterrupted([&] { return ::pwrite(descriptor_.value(), data.data(), data.size(), at); });
    if (count == -1) raise_errno(errno, path_, "cannot write", offset);
    data = data.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

void PosixFile::resize(std::uint64_t size) const {
  const off_t end = system_offset(size, path_, "cannot extend");
  if (uninterrupted([&] { return ::ftruncate(descriptor_.value(), end); }) == -1) {
    raise_errno(errno, path_, "cannot extend", size);
  }
}

void PosixFile::sync() const {
  if (uninterrupted([&] { return ::fsync(descriptor_.value()); }) == -1) {
    raise_errno(errno, path_, "cannot flush to storage");
  }
}

bool PosixFile::try_lock() const {
  struct flock lock;
  if (lock_call(descriptor_.value(), F_OFD_SETLK, F_WRLCK, lock) != -1) return true;
  if (errno == EAGAIN || errno == EACCES) return false;
  raise_errno(errno, path_, "cannot lock");
}

void PosixFile::lock_shared() const {
  struct flock lock;
  if (lock_call(descriptor_.value(), F_OFD_SETLK, F_RDLCK, lock) == -1) {
    raise_errno(errno, path_, "cannot lock");
  }
}

bool is_unlocked(const std::string& path) noexcept {
  const Descriptor file(
      uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC); }));
  struct flock lock;
  return file && lock_call(file.value(), F_OFD_GETLK, F_WRLCK, lock) != -1 &&
         lock.l_type == F_UNLCK;
}

void sync_directory(const std::string& directory) {
  const Descriptor descriptor =
      open_descriptor(directory, O_RDONLY | O_DIRECTORY, directory, "cannot open");
  const int result = uninterrupted([&] { return ::fsync(descriptor.value()); });
  // EINVAL: the filesystem has nothing to sync for a directory.
  if (result == -1 && errno != EINVAL) raise_errno(errno, directory, "cannot flush to storage");
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
