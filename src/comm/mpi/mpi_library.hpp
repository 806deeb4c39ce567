// MPI, looked up at run time: programs start without it. Only libsafeshuffle_mpi.so, which is this
// table, has its symbols; what mpi.h declares as functions and objects is used through it.
#pragma once

#include <mpi.h>

namespace safeshuffle::comm {

/// What is used of MPI, as mpi.h describes it. Codes and other numbers are used as they are.
struct MpiLibrary {
  const char* version = nullptr;  ///< of safeshuffle

  decltype(&MPI_Abort) abort = nullptr;
  decltype(&MPI_Comm_free) comm_free = nullptr;
  decltype(&MPI_Comm_get_errhandler) comm_get_errhandler = nullptr;
  decltype(&MPI_Comm_idup) comm_idup = nullptr;
  decltype(&MPI_Comm_rank) comm_rank = nullptr;
  decltype(&MPI_Comm_set_errhandler) comm_set_errhandler = nullptr;
  decltype(&MPI_Comm_size) comm_size = nullptr;
  decltype(&MPI_Comm_test_inter) comm_test_inter = nullptr;
  decltype(&MPI_Errhandler_free) errhandler_free = nullptr;
  decltype(&MPI_Error_string) error_string = nullptr;
  decltype(&MPI_Finalize) finalize = nullptr;
  decltype(&MPI_Finalized) finalized = nullptr;
  decltype(&MPI_Iallgather) iallgather = nullptr;
  decltype(&MPI_Ibcast) ibcast = nullptr;
  decltype(&MPI_Init_thread) init_thread = nullptr;
  decltype(&MPI_Initialized) initialized = nullptr;
  decltype(&MPI_Irecv) irecv = nullptr;
  decltype(&MPI_Is_thread_main) is_thread_main = nullptr;
  decltype(&MPI_Isend) isend = nullptr;
  decltype(&MPI_Query_thread) query_thread = nullptr;
  decltype(&MPI_Request_get_status) request_get_status = nullptr;
  decltype(&MPI_Test) test = nullptr;
  decltype(&MPI_Testsome) testsome = nullptr;

  MPI_Comm comm_null{};
  MPI_Comm comm_world{};
  MPI_Datatype byte{};
  MPI_Datatype datatype_null{};
  MPI_Errhandler errors_return{};
  MPI_Request request_null{};
  MPI_Status* status_ignore = nullptr;
  void* in_place = nullptr;
};

/// The program's own table, if it is linked with libsafeshuffle_mpi.so; else that library is loaded
/// from beside the program or library that contains this code, from the lib directory of its
/// installation, or from where the system looks for libraries. Never unloaded. Thread-safe. Throws
/// ConfigError that says why there is none; the next call then looks again.
const MpiLibrary& mpi();

}  // namespace safeshuffle::comm

/// All that libsafeshuffle_mpi.so exports.
extern "C" const safeshuffle::comm::MpiLibrary* safeshuffle_mpi_library();
