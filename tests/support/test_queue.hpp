// A queue with nothing to do, that is idle when told.
#pragma once

#include "device/device.hpp"

namespace safeshuffle::testing {

class TestQueue final : public device::Queue {
 public:
  bool idle() override { return busy_polls == 0 || --busy_polls == 0; }

  int busy_polls = 0;  ///< how often it is found busy before it is idle
};

}  // namespace safeshuffle::testing
