#include "core/detached_work.hpp"

#include <atomic>

namespace safeshuffle::core {
namespace {

std::atomic<unsigned> threads{0};

}  // namespace

DetachedWork::DetachedWork() noexcept {
  ++threads;
}

DetachedWork::~DetachedWork() {
  --threads;
}

bool has_detached_work() noexcept {
  return threads != 0;
}

}  // namespace safeshuffle::core
