#include "warnings.hpp"

#include <cstdio>

#include <fmt/format.h>

namespace safeshuffle::app {

void print_warnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    fmt::print(stderr, "safeshuffle: warning: {}\n", warning);
  }
  std::fflush(stderr);
}

}  // namespace safeshuffle::app
