// Exceptions become errors of the C interface.
#pragma once

#include <exception>
#include <new>

#include "safeshuffle/error.hpp"
#include "safeshuffle/safeshuffle.h"

namespace safeshuffle::c_api {

/// Never null; freed by safeshuffle_error_free.
safeshuffle_error* make_error(const ErrorRecord& record) noexcept;

/// Runs `step`, which may throw; null if it does not.
template <class Step>
safeshuffle_error* guarded(Step&& step) noexcept {
  try {
    step();
    return nullptr;
  } catch (const Error& error) {
    return make_error(error.record());
  } catch (const std::bad_alloc&) {
    return make_error({.kind = ErrorKind::memory, .cause = "an allocation failed"});
  } catch (const std::exception& error) {
    return make_error({.kind = ErrorKind::internal, .cause = error.what()});
  }
}

}  // namespace safeshuffle::c_api
