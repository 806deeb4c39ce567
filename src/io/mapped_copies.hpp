// Copies from mapped files straight to the device.
#pragma once

#include <atomic>
#include <memory>

#include "safeshuffle/error.hpp"

#include "device/device.hpp"
#include "io/mapping.hpp"
#include "io/path_recorder.hpp"

namespace safeshuffle::io {

/// Gives up when the system or the device has refused once: it would do so again. Thread-safe. The
/// constructor's arguments must outlive it.
class MappedCopies {
 public:
  MappedCopies(device::Staging& staging, PathRecorder& recorder)
      : staging_(staging), recorder_(recorder) {}

  /// See device::Staging::copy_mapped; returns whether it was copied. Throws TransportError.
  bool copy(const device::StagingSlot& slot, const std::shared_ptr<const Mapping>& mapping) {
    if (refused_) return false;
    try {
      staging_.copy_mapped(slot, mapping->memory.bytes(), mapping);
      return true;
    } catch (const IoError& error) {
      refused_ = true;
      recorder_.engine_fallback("mmap copies through the pinned ring: " + error.record().cause);
      return false;
    }
  }

 private:
  device::Staging& staging_;
  PathRecorder& recorder_;
  std::atomic<bool> refused_{false};
};

}  // namespace safeshuffle::io
