#include "warnings.hpp"

#include <fmt/format.h>

#include "output.hpp"

namespace safeshuffle::app {

void print_warnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    print_message(fmt::format("safeshuffle: warning: {}\n", warning));
  }
}

}  // namespace safeshuffle::app
