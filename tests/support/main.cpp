// For test programs that need no set-up.
#include "support/run_tests.hpp"

int main(int argc, char** argv) {
  return safeshuffle::testing::run_tests(argc, argv);
}
