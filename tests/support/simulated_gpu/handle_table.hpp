// The objects behind the opaque handles of CUDA and NCCL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace simulated_gpu {

/// Handles are numbers that are never reused, so that a stale one is recognised.
/// Thread-safe.
template <class Handle, class Object>
class HandleTable {
 public:
  Handle add(std::shared_ptr<Object> object) {
    const std::scoped_lock lock(mutex_);
    const auto handle = reinterpret_cast<Handle>(next_ += step);
    objects_.emplace(handle, std::move(object));
    return handle;
  }

  /// Null if there is no such handle.
  std::shared_ptr<Object> find(Handle handle) {
    const std::scoped_lock lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }

  /// Removes the handle and returns its object; null if there is no such handle.
  std::shared_ptr<Object> remove(Handle handle) {
    const std::scoped_lock lock(mutex_);
    auto node = objects_.extract(handle);
    return node.empty() ? nullptr : std::move(node.mapped());
  }

  std::size_t size() {
    const std::scoped_lock lock(mutex_);
    return objects_.size();
  }

 private:
  static constexpr std::uintptr_t step = 16;

  std::mutex mutex_;
  std::uintptr_t next_ = 0x1000;  // above the handles that CUDA's headers define
  std::map<Handle, std::shared_ptr<Object>> objects_;
};

}  // namespace simulated_gpu
