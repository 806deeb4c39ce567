#include "core/detached_work.hpp"

#include <atomic>

namespace safeshuffle::core {
namespace {

std::atomic<unsigned> detached_threads{0};

}  // namespace

DetachedWork::DetachedWork() noexcept {
  ++detached_threads;
}

DetachedWork::~DetachedWork() {
  --detached_threads;
}

bool has_detached_work() noexcept {
  return detached_threads != 0;
}

}  // namespace safeshuffle::core
