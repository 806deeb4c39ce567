#include "exit.hpp"

#include <cstdlib>

#include "safeshuffle/error.hpp"

#include "core/detached_work.hpp"
#include "core/error_wire.hpp"
#include "core/launcher.hpp"
#include "launch.hpp"
#include "output.hpp"

namespace safeshuffle::app {
namespace {

// Whether every rank has the same error. Otherwise other ranks may wait for ever.
bool is_agreed(const ErrorRecord& error) {
  return error.rank >= 0 && is_common(error.kind);
}

// Whether this rank has failed itself, and not only lost another.
bool is_own(const ErrorRecord& error) {
  return error.kind != ErrorKind::timeout && error.rank < 0;
}

[[noreturn]] void end_group(ErrorRecord error) {
  const bool own = is_own(error);
  if (own) error.rank = core::launched_rank();
  if (speaks_for_group(own)) print_error(error);
  abort_group(static_cast<int>(error.kind));
}

}  // namespace

int report_failure() {
  const ErrorRecord error = core::current_error();
  if (in_group() && !is_agreed(error)) end_group(error);
  if (core::launched_rank() == 0) print_error(error);
  return static_cast<int>(error.kind);
}

void end_at_once_if_needed(int code) {
  if (core::has_detached_work()) std::_Exit(code);
}

}  // namespace safeshuffle::app
