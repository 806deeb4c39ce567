// libsafeshuffle_mpi.so: see mpi_library.hpp.
#include "comm/mpi/mpi_library.hpp"

extern "C" [[gnu::visibility("default")]] const safeshuffle::comm::MpiLibrary*
safeshuffle_mpi_library() {
  static const safeshuffle::comm::MpiLibrary library{
      .version = SAFESHUFFLE_VERSION,
      .abort = MPI_Abort,
      .comm_free = MPI_Comm_free,
      .comm_get_errhandler = MPI_Comm_get_errhandler,
      .comm_idup = MPI_Comm_idup,
      .comm_rank = MPI_Comm_rank,
      .comm_set_errhandler = MPI_Comm_set_errhandler,
      .comm_size = MPI_Comm_size,
      .comm_test_inter = MPI_Comm_test_inter,
      .errhandler_free = MPI_Errhandler_free,
      .error_string = MPI_Error_string,
      .finalize = MPI_Finalize,
      .finalized = MPI_Finalized,
      .iallgather = MPI_Iallgather,
      .ibcast = MPI_Ibcast,
      .init_thread = MPI_Init_thread,
      .initialized = MPI_Initialized,
      .irecv = MPI_Irecv,
      .is_thread_main = MPI_Is_thread_main,
      .isend = MPI_Isend,
      .query_thread = MPI_Query_thread,
      .request_get_status = MPI_Request_get_status,
      .test = MPI_Test,
      .testsome = MPI_Testsome,
      .comm_null = MPI_COMM_NULL,
      .comm_world = MPI_COMM_WORLD,
      .byte = MPI_BYTE,
      .datatype_null = MPI_DATATYPE_NULL,
      .errors_return = MPI_ERRORS_RETURN,
      .request_null = MPI_REQUEST_NULL,
      .status_ignore = MPI_STATUS_IGNORE,
      .in_place = MPI_IN_PLACE,
  };
  return &library;
}
