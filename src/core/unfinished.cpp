#include "core/unfinished.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <vector>

namespace safeshuffle::core {
namespace {

constexpr std::chrono::seconds lock_patience{2};
constexpr std::chrono::milliseconds settling_patience{500};

struct Registry {
  std::timed_mutex mutex;
  std::condition_variable_any changed;
  std::vector<Unfinished*> items;  // the oldest first; guarded by mutex

  bool nothing_settles() const {
    return std::none_of(items.begin(), items.end(),
                        [](const Unfinished* item) { return item->is_settling(); });
  }
};

// Never destroyed: a signal may come while the process ends.
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

}  // namespace

UnfinishedLock lock_unfinished() {
  return UnfinishedLock(registry().mutex);
}

void Unfinished::track() {
  registry().items.push_back(this);
}

void Unfinished::forget() noexcept {
  std::erase(registry().items, this);
  registry().changed.notify_all();
}

void roll_back_unfinished() noexcept {
  Registry& all = registry();
  UnfinishedLock lock(all.mutex, lock_patience);
  if (!lock) return;
  all.changed.wait_for(lock, settling_patience, [&] { return all.nothing_settles(); });
  std::for_each(all.items.rbegin(), all.items.rend(), [](Unfinished* item) { item->roll_back(); });
  lock.release();
}

}  // namespace safeshuffle::core
