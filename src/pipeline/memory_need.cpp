#include "pipeline/memory_need.hpp"

#include <algorithm>
#include <map>

namespace safeshuffle::pipeline {
namespace {

struct Node {
  std::string host;
  std::uint64_t available = 0;
  std::uint64_t read = 0;
  std::uint64_t allocated = 0;
};

std::map<std::string, Node> nodes_of(const Plan& plan, DeviceKind device,
                                     std::span<const Memory> memory) {
  std::map<std::string, Node> nodes;
  for (std::size_t rank = 0; rank < memory.size(); ++rank) {
    Node& node = nodes[memory[rank].node];
    node.host = memory[rank].host;
    node.available = memory[rank].available;
    node.read += plan.ranks()[rank].read_bytes;
    if (device == DeviceKind::host) node.allocated += plan.ranks()[rank].peak_device_bytes;
  }
  return nodes;
}

}  // namespace

std::string prefetch_warning(const Plan& plan, DeviceKind device, std::span<const Memory> memory) {
  for (const auto& [id, node] : nodes_of(plan, device, memory)) {
    // Several ranks may read the same bytes.
    const std::uint64_t read = std::min(node.read, plan.needed_bytes());
    if (node.available == 0 || read + node.allocated <= node.available) continue;
    return "prefetch: " + std::to_string(read) + " bytes of files" +
           (node.allocated == 0 ? "" : " and " + std::to_string(node.allocated) + " of tensors") +
           " do not fit in the " + std::to_string(node.available) + " bytes of memory that " +
           node.host + " has available: part of the files will not stay in the page cache";
  }
  return {};
}

}  // namespace safeshuffle::pipeline
