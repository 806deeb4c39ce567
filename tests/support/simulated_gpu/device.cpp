#include "support/simulated_gpu/device.hpp"

#include <array>
#include <cstdio>
#include <deque>
#include <numeric>

#include "support/simulated_gpu/inspect.hpp"
#include "support/simulated_gpu/settings.hpp"
#include "support/simulated_gpu/stream.hpp"
#include "support/simulated_gpu/violations.hpp"

namespace simulated_gpu {
namespace {

// Never destroyed: streams may still work while the process exits.
std::deque<Device>& devices() {
  static auto* const all = [] {
    auto* const made = new std::deque<Device>;
    for (int ordinal = 0; ordinal < settings().gpus; ++ordinal) made->emplace_back(ordinal);
    return made;
  }();
  return *all;
}

}  // namespace

std::string Device::bus_id() const {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "0000:%02x:00.0", static_cast<unsigned>(ordinal_ + 1));
  return text.data();
}

bool Device::release() noexcept {
  int count = retained_;
  while (count > 0 && !retained_.compare_exchange_weak(count, count - 1)) {
  }
  return count > 0;
}

void Device::fail(cudaError_t error) noexcept {
  cudaError_t none = cudaSuccess;
  error_.compare_exchange_strong(none, error);
}

bool Device::take(std::uint64_t bytes) {
  std::uint64_t used = used_bytes_;
  do {
    if (bytes > settings().memory - used) return false;
  } while (!used_bytes_.compare_exchange_weak(used, used + bytes));
  return true;
}

bool Device::require_no_nccl(const std::string& what) {
  if (nccl_operations_ == 0) return true;
  report_violation(what + " while an NCCL operation is in flight on GPU " +
                   std::to_string(ordinal_));
  return false;
}

std::shared_ptr<Stream> Device::default_stream() {
  const std::scoped_lock lock(mutex_);
  if (!default_stream_) {
    default_stream_ = Stream::start(*this);
    streams_.push_back(default_stream_);
  }
  return default_stream_;
}

void Device::add_stream(const std::shared_ptr<Stream>& stream) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(streams_, [](const auto& known) { return known.expired(); });
  streams_.push_back(stream);
}

void Device::synchronize() {
  std::vector<std::weak_ptr<Stream>> streams;
  {
    const std::scoped_lock lock(mutex_);
    streams = streams_;
  }
  for (const auto& known : streams) {
    if (const auto stream = known.lock()) stream->wait();
  }
}

int device_count() {
  return settings().gpus;
}

Device* find_device(int ordinal) {
  if (ordinal < 0 || ordinal >= device_count()) return nullptr;
  return &devices()[static_cast<std::size_t>(ordinal)];
}

ContextStack& ContextStack::of_this_thread() {
  thread_local ContextStack stack;
  return stack;
}

Device* ContextStack::pop() {
  Device* const device = top();
  if (device != nullptr) devices_.pop_back();
  return device;
}

void ContextStack::replace_top(Device* device) {
  pop();
  if (device != nullptr) push(device);
}

Device& current_device() {
  Device* const chosen = ContextStack::of_this_thread().top();
  return chosen != nullptr ? *chosen : devices().front();
}

std::vector<int> devices_with_context() {
  std::vector<int> result;
  for (const Device& device : devices()) {
    if (device.has_context()) result.push_back(device.ordinal());
  }
  return result;
}

std::uint64_t device_bytes(int ordinal) {
  const Device* const device = find_device(ordinal);
  return device == nullptr ? 0 : device->used_bytes();
}

}  // namespace simulated_gpu
