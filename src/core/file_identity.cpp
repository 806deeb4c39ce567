#include "core/file_identity.hpp"

#include <cerrno>
#include <sys/stat.h>
#include <system_error>

#include "safeshuffle/error.hpp"

namespace safeshuffle::core {
namespace {

IoError failure(const std::string& path, int code, std::string cause) {
  return IoError(ErrorRecord{
      .code = code, .file = path, .tensor = {}, .offset = {}, .cause = std::move(cause)});
}

IoError cannot_stat(const std::string& path) {
  const int code = errno;
  return failure(path, code, "cannot stat: " + std::generic_category().message(code));
}

FileIdentity identity(const struct stat& status, const std::string& path) {
  if (!S_ISREG(status.st_mode)) {
    throw failure(path, S_ISDIR(status.st_mode) ? EISDIR : EINVAL, "not a regular file");
  }
  return {static_cast<std::uint64_t>(status.st_size),
          std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

}  // namespace

FileIdentity identify(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw cannot_stat(path);
  return identity(status, path);
}

FileIdentity identify(int descriptor, const std::string& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw cannot_stat(path);
  return identity(status, path);
}

}  // namespace safeshuffle::core
