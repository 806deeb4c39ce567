// How the process was started: alone, or as one rank of an MPI job.
#pragma once

#include "safeshuffle/communicator.hpp"

namespace safeshuffle::app {

/// The rank that the launcher gave this process; 0 if it was started alone.
int launched_rank();

/// Whether an MPI launcher started this process.
bool under_launcher();

/// The group of this process: all ranks of the MPI job, or itself. At most one per process; ends
/// MPI when destroyed.
class Session {
 public:
  explicit Session(DeviceSpec device);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Communicator& comm() const { return comm_; }

 private:
  Communicator comm_;
};

/// Ends all ranks with this exit code, also those that are stuck.
[[noreturn]] void abort_group(int code);

}  // namespace safeshuffle::app
