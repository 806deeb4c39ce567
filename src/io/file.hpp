// One open file. A file that is not the one described is an error.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "safeshuffle/metadata.hpp"
#include "safeshuffle/options.hpp"

#include "device/device.hpp"
#include "io/path_recorder.hpp"
#include "io/policy.hpp"
#include "source/source.hpp"

namespace safeshuffle::io {

/// Thread-safe. The constructor's arguments must outlive it.
class File {
 public:
  /// Opens and checks. `mode`: whether reads bypass the page cache, where that is possible;
  /// automatic decides for each range. `device`: what makes direct reads into device memory, if
  /// that was asked for. Throws IoError.
  File(const FileInfo& info, DirectIo mode, const source::Source& source, PathRecorder& recorder,
       device::DeviceReads* device = nullptr);

  const FileInfo& info() const noexcept { return info_; }
  PathRecorder& recorder() const noexcept { return recorder_; }

  /// How a range is to be read.
  AccessChoice choose_access(std::uint64_t offset, std::uint64_t bytes) const;

  const source::Handle& buffered() const noexcept { return *buffered_; }

  /// Opened on first use. Null if direct reads are not possible, for the reason
  /// `direct_obstacle`. Throws IoError if the file is no longer the one described.
  const source::Handle* direct();

  /// Direct reads are refused.
  void refuse_direct(const std::string& obstacle);

  std::string direct_obstacle() const;

  /// The file for direct reads into device memory, if these were asked for. Opened on first use.
  /// Null if they are not possible, for the reason `device_obstacle`. Throws IoError if the file is
  /// no longer the one described.
  const device::DeviceFile* on_device();

  /// To be called after `on_device`. Empty if there is none, or nothing was asked for.
  const std::string& device_obstacle() const noexcept { return device_obstacle_; }

 private:
  void open_direct();
  void open_on_device(const source::Handle* handle);
  AccessChoice choose_automatically(std::uint64_t offset, std::uint64_t bytes) const;
  bool is_known_cached(std::uint64_t offset, std::uint64_t bytes) const;
  void note_cached(std::uint64_t offset, std::uint64_t bytes) const;

  const FileInfo& info_;
  const DirectIo mode_;
  const source::Source& source_;
  PathRecorder& recorder_;
  device::DeviceReads* const device_;
  const std::unique_ptr<source::Handle> buffered_;
  std::mutex opening_direct_;
  std::unique_ptr<source::Handle> direct_;  // set under opening_direct_, once
  std::once_flag on_device_opened_;
  std::unique_ptr<device::DeviceFile> on_device_;  // reads from the descriptor of `direct_`
  std::string device_obstacle_;                    // written before `on_device_opened_` is set
  mutable std::mutex mutex_;
  std::string direct_obstacle_;  // guarded by mutex_; empty if there is none
  // The last range that was found entirely cached, so that its pages are not counted again for each
  // small range in it; guarded by mutex_. If the system drops it meanwhile, reading takes longer.
  mutable std::uint64_t cached_begin_ = 0;
  mutable std::uint64_t cached_end_ = 0;
};

/// Whether an errno of a direct open or read says that there are no direct reads here.
bool refuses_direct_reads(int code) noexcept;

/// Throws IoError if the file at the path is no longer the one described.
void check_unchanged(const FileInfo& info, const source::Source& source);

}  // namespace safeshuffle::io
