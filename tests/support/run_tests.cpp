#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

#include "support/run_tests.hpp"
#include "support/sanitizers.hpp"

#if SAFESHUFFLE_TSAN
// That of GCC 12 does not see a std::timed_mutex being locked with a time limit
// (pthread_mutex_clocklock).
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "mutex:safeshuffle::core::roll_back_unfinished\n"
         "race:safeshuffle::core::roll_back_unfinished\n";
}
#endif

namespace safeshuffle::testing {

int run_tests(int argc, char** argv) {
  return Catch::Session().run(argc, argv);
}

}  // namespace safeshuffle::testing
