#include "io/files.hpp"

#include <algorithm>
#include <sys/resource.h>
#include <utility>

namespace safeshuffle::io {
namespace {

constexpr std::size_t most_kept_open = 32;  // enough for the few large ones that a wave touches

/// A share of the files that the process may open, at least one.
std::size_t descriptors_divided_by(rlim_t divisor) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return most_kept_open;
  return std::max<rlim_t>(limit.rlim_cur / divisor, 1);
}

}  // namespace

std::size_t files_in_flight() {
  return descriptors_divided_by(8);
}

Files::Files(std::vector<FileInfo> infos, const ReaderOptions& options,
             const source::Source& source, PathRecorder& recorder, device::DeviceReads* device)
    : infos_(std::move(infos)),
      mode_(options.direct),
      read_ahead_(options.read_ahead),
      capacity_(std::min(descriptors_divided_by(16), most_kept_open)),
      source_(source),
      recorder_(recorder),
      device_(device) {}

void Files::start_over(std::vector<FileInfo> infos) {
  recent_.clear();
  infos_ = std::move(infos);
}

std::shared_ptr<File> Files::open(std::uint32_t file) {
  return find(file).get();  // opens it without the lock, because a network filesystem may be slow
}

Files::SharedFile Files::find(std::uint32_t file) {
  SharedFile closing;  // also closed without the lock
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(recent_, file, &Entry::index);
  if (found != recent_.end()) {
    std::rotate(found, found + 1, recent_.end());
    return recent_.back().file;
  }
  if (recent_.size() == capacity_) {
    closing = std::move(recent_.front().file);
    recent_.erase(recent_.begin());
  }
  const auto open_it = [this, file] {
    auto opened = std::make_shared<File>(info(file), mode_, source_, recorder_, device_);
    if (!read_ahead_) opened->buffered().stop_readahead();
    return opened;
  };
  recent_.push_back({file, std::async(std::launch::deferred, open_it)});
  return recent_.back().file;
}

}  // namespace safeshuffle::io
