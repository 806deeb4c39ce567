#include "io/file.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "safeshuffle/error.hpp"
#include "safeshuffle/requests.hpp"

#include "core/defaults.hpp"
#include "core/file_identity.hpp"

namespace safeshuffle::io {
namespace {

// A small range is judged by the megabyte that it begins, because reading the header has cached the
// page that it ends in; unless it lies in the range that was last found entirely cached.
constexpr std::uint64_t least_judged = core::mebibyte;

void require_identity(const FileInfo& info, const core::FileIdentity& found,
                      const source::Source& source) {
  const bool same_inode = info.inode == 0 || info.inode == found.inode;
  if (same_inode && found.size == info.size && found.modified_ns == info.modified_ns) return;
  std::string cause = "file changed since its header was read";
  if (source.places() > 1) cause += ", or another source has another version";
  throw IoError(ErrorRecord{.file = info.path, .cause = std::move(cause)});
}

}  // namespace

File::File(const FileInfo& info, DirectIo mode, const source::Source& source,
           PathRecorder& recorder, device::DeviceReads* device)
    : info_(info),
      mode_(mode),
      source_(source),
      recorder_(recorder),
      device_(device),
      buffered_(source.open(info.path, source::Access::cached)) {
  require_identity(info_, buffered_->identity(), source_);
}

AccessChoice File::choose_access(std::uint64_t offset, std::uint64_t bytes) const {
  if (source_.is_remote(info_.path)) return {.reason = over_http};
  if (mode_ == DirectIo::on) return {.direct = true};
  const AccessChoice choice = choose_automatically(offset, bytes);
  return mode_ == DirectIo::off ? AccessChoice{.cached = choice.cached} : choice;
}

AccessChoice File::choose_automatically(std::uint64_t offset, std::uint64_t bytes) const {
  if (!buffered_->is_local()) return automatic_access(false, bytes, {});
  if (is_known_cached(offset, bytes)) return automatic_access(true, bytes, bytes);
  const std::uint64_t judged =
      std::max(bytes, std::min(least_judged, info_.size - std::min(offset, info_.size)));
  const auto cached = buffered_->cached_bytes(offset, judged);
  if (!cached) {
    const auto sampled = buffered_->sampled_cached_bytes(offset, judged);
    return automatic_access(true, judged, sampled, true);
  }
  if (*cached == judged) note_cached(offset, judged);
  return automatic_access(true, judged, cached);
}

bool File::is_known_cached(std::uint64_t offset, std::uint64_t bytes) const {
  const std::scoped_lock lock(mutex_);
  return cached_begin_ <= offset && offset + bytes <= cached_end_;
}

// Readers that come late must not take back what those ahead of them will need.
void File::note_cached(std::uint64_t offset, std::uint64_t bytes) const {
  const std::scoped_lock lock(mutex_);
  if (offset + bytes <= cached_end_) return;
  cached_begin_ = offset;
  cached_end_ = offset + bytes;
}

// Not by std::call_once, which hangs after an exception under ThreadSanitizer.
const source::Handle* File::direct() {
  const std::scoped_lock lock(opening_direct_);
  if (!direct_obstacle().empty()) return nullptr;
  if (!direct_) open_direct();
  return direct_.get();
}

void File::open_direct() {
  try {
    auto handle = source_.open(info_.path, source::Access::direct);
    require_identity(info_, handle->identity(), source_);
    direct_ = std::move(handle);
  } catch (const IoError& error) {
    if (!refuses_direct_reads(error.record().code)) throw;
    refuse_direct("open: " + std::generic_category().message(error.record().code));
  }
}

const device::DeviceFile* File::on_device() {
  if (device_ == nullptr) return nullptr;
  const source::Handle* const handle = direct();
  std::call_once(on_device_opened_, [&] { open_on_device(handle); });
  return on_device_.get();
}

void File::open_on_device(const source::Handle* handle) {
  if (handle == nullptr) {
    device_obstacle_ = "no direct I/O: " + direct_obstacle();
  } else if (handle->descriptor() == -1) {
    device_obstacle_ = "it has no file descriptor";
  } else {
    try {
      on_device_ = device_->open(handle->descriptor());
    } catch (const IoError& error) {
      device_obstacle_ = error.record().cause;
    }
  }
}

void File::refuse_direct(const std::string& obstacle) {
  const std::scoped_lock lock(mutex_);
  if (direct_obstacle_.empty()) direct_obstacle_ = obstacle;
}

std::string File::direct_obstacle() const {
  const std::scoped_lock lock(mutex_);
  return direct_obstacle_;
}

bool refuses_direct_reads(int code) noexcept {
  return code == EINVAL || code == EOPNOTSUPP;
}

void check_unchanged(const FileInfo& info, const source::Source& source) {
  if (!source.is_remote(info.path)) require_identity(info, source.identify(info.path), source);
}

}  // namespace safeshuffle::io
