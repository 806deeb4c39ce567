#include "core/locked_mapping.hpp"

#include <cerrno>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/system_call.hpp"

namespace safeshuffle::core {
namespace {

std::size_t offset_in_page(std::uint64_t offset) {
  return offset % static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

/// What mlock was asked for, and the limit that it is subject to without CAP_IPC_LOCK.
std::string action(std::size_t bytes) {
  rlimit limit{};
  const bool limited = ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return "cannot lock " + std::to_string(bytes) + " bytes in memory" +
         (limited ? " (ulimit -l: " + std::to_string(limit.rlim_cur >> 10) + " KiB)" : "");
}

}  // namespace

LockedMapping::LockedMapping(int descriptor, std::uint64_t offset, std::size_t bytes)
    : skip_(offset_in_page(offset)) {
  void* const address = ::mmap(nullptr, skip_ + bytes, PROT_READ, MAP_SHARED, descriptor,
                               static_cast<off_t>(offset - skip_));
  if (address == MAP_FAILED) raise_errno(errno, {}, "cannot map it");
  pages_ = {static_cast<std::byte*>(address), skip_ + bytes};
  lock();
}

void LockedMapping::lock() {
  if (::mlock(pages_.data(), pages_.size()) == 0) return;
  const int code = errno;
  ::munmap(pages_.data(), pages_.size());
  raise_errno(code, {}, action(pages_.size()));
}

LockedMapping::~LockedMapping() {
  ::munmap(pages_.data(), pages_.size());
}

}  // namespace safeshuffle::core
