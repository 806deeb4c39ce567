// Ownership of file descriptors.
#pragma once

#include <unistd.h>
#include <utility>

namespace safeshuffle::core {

/// Closes the descriptor it owns, if any. Movable.
class Descriptor {
 public:
  /// Takes the result of a system call; -1 means none.
  explicit Descriptor(int value = -1) noexcept : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Descriptor() {
    if (*this) ::close(value_);
  }

  int value() const noexcept { return value_; }
  explicit operator bool() const noexcept { return value_ != -1; }

 private:
  int value_;
};

}  // namespace safeshuffle::core
