// One operation of an NCCL group, as the program requested it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nccl.h>

#include "support/simulated_gpu/memory.hpp"
#include "support/simulated_gpu/nccl_communicator.hpp"
#include "support/simulated_gpu/stream.hpp"

namespace simulated_gpu {

struct Operation {
  enum class Kind : std::uint32_t { send, receive, broadcast, all_gather, all_reduce };

  Kind kind = Kind::send;
  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<Stream> stream;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t reduction = ncclSum;
  int peer = 0;             ///< of a send or receive; the root of a broadcast
  std::uint64_t bytes = 0;  ///< that one rank contributes
  Region source;            ///< empty if the rank sends nothing
  Region target;            ///< empty if it receives nothing

  bool collective() const { return kind != Kind::send && kind != Kind::receive; }
};

/// Bytes of one element; 0 for an unknown type.
std::uint64_t size_of(ncclDataType_t type);

}  // namespace simulated_gpu
