// Seeded randomness, so that events that a GPU does not order happen in many, reproducible orders.
#pragma once

#include <chrono>
#include <cstdint>
#include <random>
#include <thread>

#include "support/simulated_gpu/settings.hpp"

namespace simulated_gpu {

/// Not thread-safe: each user has its own, identified by `user`.
class Chance {
 public:
  explicit Chance(std::uint64_t user) : numbers_(settings().seed * 0x9E3779B97F4A7C15U + user) {}

  /// True once in `times`.
  bool once_in(std::uint64_t times) { return numbers_() % times == 0; }

  /// Sleeps for less than `most`.
  void pause(std::chrono::microseconds most) {
    const auto share = numbers_() % static_cast<std::uint64_t>(most.count());
    std::this_thread::sleep_for(std::chrono::microseconds(share));
  }

 private:
  std::mt19937_64 numbers_;
};

}  // namespace simulated_gpu
