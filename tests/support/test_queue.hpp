// A queue without work, idle when the test says so.
#pragma once

#include "device/device.hpp"

namespace safeshuffle::testing {

class TestQueue final : public device::Queue {
 public:
  bool idle() override { return busy_polls == 0 || --busy_polls == 0; }

  int busy_polls = 0;  ///< number of polls that find it busy
};

}  // namespace safeshuffle::testing
