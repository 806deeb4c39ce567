// What the examples have in common: MPI, arguments, errors, exit statuses.
#pragma once

#include <chrono>
#include <iostream>

#include <safeshuffle/communicator.hpp>
#include <safeshuffle/error.hpp>
#include <safeshuffle/mpi.hpp>

/// On any thread; where only the main thread may call MPI, that is not true of MPI_Wtime.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// What one rank does with the arguments, of which argv[1] is a checkpoint.
using Work = void(const safeshuffle::Communicator& comm, int argc, char** argv);

/// The exit status of this rank. An error that all ranks have is printed by one of them; one that
/// only this rank has must end the others, too.
inline int run(Work& work, safeshuffle::Device device, int argc, char** argv) try {
  work(safeshuffle::from_mpi(MPI_COMM_WORLD, device), argc, argv);
  return 0;
} catch (const safeshuffle::Error& error) {
  const auto status = static_cast<int>(error.kind());
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0 || !is_common(error.kind())) std::cerr << error.what() << '\n';
  if (!is_common(error.kind())) MPI_Abort(MPI_COMM_WORLD, status);
  return status;
}

inline int run_with_mpi(Work& work, safeshuffle::Device device, int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  const int status = argc < 2 ? 2 : run(work, device, argc, argv);
  MPI_Finalize();
  return status;
}
