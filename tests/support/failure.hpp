// The error of a call that must fail.
#pragma once

#include "safeshuffle/error.hpp"

#include "support/catch.hpp"

namespace safeshuffle::testing {

/// The record of the `Exception` that `call` throws; fails the test if it throws none.
template <typename Exception, typename Call>
safeshuffle::ErrorRecord failure(Call call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.record();
  }
  FAIL("no exception");
  return {};
}

}  // namespace safeshuffle::testing
