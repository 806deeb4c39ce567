#include "core/file_identity.hpp"

#include <cerrno>
#include <sys/stat.h>

#include "safeshuffle/error.hpp"

#include "core/system_call.hpp"

namespace safeshuffle::core {
namespace {

FileIdentity identity(const struct stat& status, const std::string& path) {
  if (!S_ISREG(status.st_mode)) {
    throw IoError(ErrorRecord{.code = S_ISDIR(status.st_mode) ? EISDIR : EINVAL,
                              .file = path,
                              .cause = "not a regular file"});
  }
  return {static_cast<std::uint64_t>(status.st_size),
          std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec,
          std::uint64_t{status.st_ino}};
}

}  // namespace

FileIdentity identify(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == -1) raise_errno(errno, path, "cannot stat");
  return identity(status, path);
}

FileIdentity identify(int descriptor, const std::string& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) == -1) raise_errno(errno, path, "cannot stat");
  return identity(status, path);
}

}  // namespace safeshuffle::core
