#include "message.hpp"

#include <cstdio>

#include <fmt/format.h>

namespace safeshuffle::app {

void print_error(const ErrorRecord& error) {
  fmt::print(stderr, "safeshuffle: error: {}\n", describe(error));
  std::fflush(stderr);
}

}  // namespace safeshuffle::app
