#include "support/simulated_gpu/memory.hpp"

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>
#include <sys/mman.h>
#include <utility>

#include "support/simulated_gpu/call.hpp"
#include "support/simulated_gpu/faults.hpp"
#include "support/simulated_gpu/inspect.hpp"
#include "support/simulated_gpu/violations.hpp"

namespace simulated_gpu {
namespace {

constexpr std::uint64_t page = 4096;
constexpr std::uint64_t device_space = std::uint64_t{1} << 38;
constexpr int poison = 0xDB;

std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

std::byte* map_memory(std::uint64_t bytes, int protection) {
  void* mapping =
      mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(mapping != MAP_FAILED, cudaErrorMemoryAllocation);
  return static_cast<std::byte*>(mapping);
}

std::byte* map_poisoned(std::uint64_t bytes) {
  std::byte* view = map_memory(bytes, PROT_READ | PROT_WRITE);
  std::memset(view, poison, bytes);
  return view;
}

/// The reserved addresses of device memory, for all GPUs as with unified addressing.
class DeviceAddresses {
 public:
  bool contains(std::uintptr_t address) const { return address - begin_ < device_space; }

  /// As the driver does: only large allocations are aligned to more than 512 bytes.
  std::uintptr_t take(std::uint64_t bytes) {
    constexpr std::uint64_t large = std::uint64_t{1} << 20;
    const std::uint64_t alignment = bytes < large ? page : 2 * large;
    const std::uint64_t skip = bytes < large ? 512 : 0;
    const std::scoped_lock lock(mutex_);
    const std::uintptr_t address = round_up(next_, alignment) + skip;
    require(contains(address + bytes + page), cudaErrorMemoryAllocation);
    next_ = address + bytes + page;  // a gap, so that overruns are detected
    return address;
  }

 private:
  std::mutex mutex_;
  const std::uintptr_t begin_ =
      reinterpret_cast<std::uintptr_t>(map_memory(device_space, PROT_NONE));
  std::uintptr_t next_ = begin_;
};

struct Allocations {
  std::mutex mutex;
  std::map<std::uintptr_t, std::shared_ptr<Allocation>> by_address;
  std::atomic<std::uint64_t> pinned{0};
  std::atomic<std::uint64_t> so_far{0};

  std::shared_ptr<Allocation> find(std::uintptr_t address) {
    const std::scoped_lock lock(mutex);
    auto after = by_address.upper_bound(address);
    if (after == by_address.begin()) return nullptr;
    const auto& found = std::prev(after)->second;
    return address - found->address <= found->bytes ? found : nullptr;
  }
};

// Never destroyed: streams may still work while the process exits.
Allocations& allocations() {
  static auto* const all = new Allocations;
  return *all;
}

DeviceAddresses& device_addresses() {
  static auto* const addresses = new DeviceAddresses;
  return *addresses;
}

void* keep(std::shared_ptr<Allocation> allocation) {
  const std::uintptr_t address = allocation->address;
  const std::scoped_lock lock(allocations().mutex);
  ++allocations().so_far;
  allocations().by_address.emplace(address, std::move(allocation));
  return reinterpret_cast<void*>(address);
}

std::string text(const void* pointer, std::uint64_t bytes) {
  std::ostringstream result;
  result << bytes << " bytes at " << pointer;
  return result.str();
}

[[noreturn]] void fail(const std::string& violation) {
  report_violation(violation);
  throw CudaFailure{cudaErrorInvalidValue};
}

}  // namespace

Allocation::~Allocation() {
  munmap(view, round_up(bytes, page));
}

void* allocate_device(Device& device, std::uint64_t bytes) {
  require(device.take(bytes), cudaErrorMemoryAllocation);
  const std::uintptr_t address = device_addresses().take(bytes);
  return keep(std::make_shared<Allocation>(Allocation::Kind::device, device, address, bytes,
                                           map_poisoned(bytes)));
}

void* allocate_pinned(Device& device, std::uint64_t bytes) {
  std::byte* view = map_poisoned(bytes);
  allocations().pinned += bytes;
  return keep(std::make_shared<Allocation>(Allocation::Kind::pinned, device,
                                           reinterpret_cast<std::uintptr_t>(view), bytes, view));
}

std::shared_ptr<Allocation> require_allocation(const void* pointer, Allocation::Kind kind) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  auto found = allocations().find(address);
  if (!found || found->address != address || found->kind != kind) {
    fail("freeing " + text(pointer, 0) + ", where no such allocation begins");
  }
  return found;
}

void forget(const Allocation& allocation) {
  if (allocation.kind == Allocation::Kind::device) {
    allocation.device.give_back(allocation.bytes);
  } else {
    allocations().pinned -= allocation.bytes;
  }
  const std::scoped_lock lock(allocations().mutex);
  allocations().by_address.erase(allocation.address);
}

std::optional<Region> find_region(const void* pointer, std::uint64_t bytes,
                                  const std::string& what) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  auto found = allocations().find(address);
  if (!found) {
    if (!device_addresses().contains(address)) return {};
    fail(what + ": " + text(pointer, bytes) + " are not in live device memory");
  }
  const std::uint64_t offset = address - found->address;
  if (bytes > found->bytes - offset) {
    fail(what + ": " + text(pointer, bytes) + " pass the end of an allocation of " +
         std::to_string(found->bytes));
  }
  return Region{found, found->view + offset};
}

std::byte* host_view(const void* device_pointer) {
  try {
    if (const auto region = find_region(device_pointer, 1, "kernel")) return region->data;
    report_violation("kernel: " + text(device_pointer, 1) + " is memory of the host alone");
  } catch (const CudaFailure&) {  // the violation has been reported
  }
  throw DeviceFault{};
}

std::uint64_t allocations_so_far() {
  return allocations().so_far;
}

std::uint64_t pinned_bytes() {
  return allocations().pinned;
}

}  // namespace simulated_gpu
