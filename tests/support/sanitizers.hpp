// Which sanitizer is built in, as SAFESHUFFLE_ASAN and SAFESHUFFLE_TSAN, 0 or 1: GCC has macros for
// it, clang features.
#pragma once

#if defined(__has_feature)
#define SAFESHUFFLE_ASAN __has_feature(address_sanitizer)
#define SAFESHUFFLE_TSAN __has_feature(thread_sanitizer)
#else
#ifdef __SANITIZE_ADDRESS__
#define SAFESHUFFLE_ASAN 1
#else
#define SAFESHUFFLE_ASAN 0
#endif
#ifdef __SANITIZE_THREAD__
#define SAFESHUFFLE_TSAN 1
#else
#define SAFESHUFFLE_TSAN 0
#endif
#endif

namespace safeshuffle::testing {

/// How many of `count` random cases to run. A sanitizer looks for errors that most of them have in
/// common, and makes them many times slower.
template <class Count>
constexpr Count cases(Count count) {
  return SAFESHUFFLE_ASAN || SAFESHUFFLE_TSAN ? (count + 7) / 8 : count;
}

}  // namespace safeshuffle::testing
