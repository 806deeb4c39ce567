// Reads one range of a file by one call after the other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "safeshuffle/error.hpp"

#include "core/page.hpp"
#include "device/device.hpp"
#include "io/file.hpp"
#include "source/source.hpp"

namespace safeshuffle::io {

/// Decides which calls are made, so that an engine only makes them: direct or not, what to do with
/// unaligned heads and tails and with short reads, and what to record. Not thread-safe.
class RangeRead {
 public:
  /// One call of `read_some` of one of the two. If it is direct, all is aligned to
  /// core::page_bytes.
  struct Call {
    const source::Handle* handle = nullptr;
    std::uint64_t offset = 0;
    std::span<std::byte> to;  ///< device memory if `device` is not null
    bool direct = false;
    const device::DeviceFile* device = nullptr;
  };

  /// `slot` is to be filled with the bytes from `offset` on, unless it may be left, see LeftRange.
  /// Throws IoError.
  RangeRead(std::shared_ptr<File> file, std::uint64_t offset, const device::StagingSlot& slot,
            bool may_leave);

  /// The file, if the range is left there: then there is no call to make.
  std::shared_ptr<File> left_in() const { return left_ ? file_ : nullptr; }

  /// Why it is read as it is; as in PathRecorder::Range.
  std::string_view choice() const noexcept { return choice_.reason; }

  /// What is in device memory already.
  device::StagingSlot::Part on_device() const noexcept { return on_device_; }

  const std::string& path() const noexcept { return file_->info().path; }

  /// The call to make now; none when the range is read, which is then recorded.
  std::optional<Call> next();

  /// Makes that call, with `done` or `failed`. Throws IoError.
  void make(const Call& call);

  /// That call has read so many bytes, 0 at the end of the file. Throws IoError if the file ended
  /// early.
  void done(std::size_t bytes);

  /// That call failed. Throws `error`, unless it refuses direct reads.
  void failed(const IoError& error);

 private:
  struct alignas(core::page_bytes) Block {
    std::array<std::byte, core::page_bytes> bytes;
  };

  void begin_directly();
  std::optional<Call> next_direct();
  void done_directly(std::size_t bytes);
  void done_on_device(std::size_t bytes);
  void advance_buffered(std::size_t bytes) noexcept;
  void advance(std::size_t bytes) noexcept;
  void read_buffered_because(std::string reason);
  void record() const;

  const std::shared_ptr<File> file_;
  const device::StagingSlot slot_;
  std::uint64_t offset_;     // of what is left
  std::span<std::byte> to_;  // for what is left
  AccessChoice choice_;
  bool left_ = false;
  const source::Handle* direct_ = nullptr;      // null: the rest is read through the page cache
  std::unique_ptr<Block> block_;                // of a call that is not made into `to_`
  const device::DeviceFile* device_ = nullptr;  // null: the rest does not go straight to the device
  bool calls_device_ = false;                   // the present call
  device::StagingSlot::Part on_device_;
  std::string obstacle_;         // why a range that should be read directly is not, or only in part
  std::string device_obstacle_;  // the same of straight reads into device memory
  std::uint64_t direct_bytes_ = 0;
  std::uint64_t device_bytes_ = 0;  // of these
  std::uint64_t buffered_bytes_ = 0;
};

}  // namespace safeshuffle::io
