// MPI return codes as exceptions.
#pragma once

#include <string>

#include <mpi.h>

#include "safeshuffle/error.hpp"

#include "comm/mpi/mpi_library.hpp"

namespace safeshuffle::comm {

/// Throws TransportError with MPI's message unless `code` is MPI_SUCCESS. `operation` names the
/// call.
inline void check_mpi(int code, const std::string& operation) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  mpi().error_string(code, text, &length);
  throw TransportError(ErrorRecord{.code = code, .cause = operation + ": " + text});
}

}  // namespace safeshuffle::comm
