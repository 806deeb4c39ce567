#include "core/keep_forever.hpp"

#include <mutex>
#include <utility>
#include <vector>

namespace safeshuffle::core {

void keep_forever(std::shared_ptr<const void> memory) {
  static std::mutex mutex;
  // Never destroyed: the memory may be written to until the process ends.
  static auto* const kept = new std::vector<std::shared_ptr<const void>>;
  const std::scoped_lock lock(mutex);
  kept->push_back(std::move(memory));
}

}  // namespace safeshuffle::core
