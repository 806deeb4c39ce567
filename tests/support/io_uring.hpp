// Whether there is io_uring to be tested.
#pragma once

#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "safeshuffle/error.hpp"

#include "io/uring_engine.hpp"
#include "support/catch.hpp"

namespace safeshuffle::testing {

/// Asks the system without the engine under test.
inline bool system_has_io_uring() {
  io_uring_params parameters{};
  const long ring = ::syscall(SYS_io_uring_setup, 1, &parameters);
  if (ring >= 0) ::close(static_cast<int>(ring));
  return ring >= 0;
}

/// Says why, if there is none. An engine that does not work where the system has io_uring is a
/// failure of the test, unless the build is without it.
inline bool has_io_uring() {
  try {
    io::make_uring_engine(1, 1);
    return true;
  } catch (const IoError& error) {
    const bool is_built = error.record().code != 0;
    CHECK_FALSE((is_built && system_has_io_uring()));
    WARN("skipped: " << error.record().cause);
    return false;
  }
}

}  // namespace safeshuffle::testing
