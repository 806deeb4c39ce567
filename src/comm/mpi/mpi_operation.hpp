// One collective step made of non-blocking MPI calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <mpi.h>

#include "comm/mpi/mpi_group.hpp"

namespace safeshuffle::comm {

/// Distinguishes the messages of different steps.
enum class MpiTag : int { size = 1, text, run };

/// Requests in flight. If it is destroyed before `done` was true, MPI may still use their memory:
/// the operation then keeps `memory` for the rest of the process and breaks the group.
class MpiOperation {
 public:
  /// `memory` owns what the requests read and write; may be empty.
  MpiOperation(std::shared_ptr<MpiGroup> group, std::uint64_t piece,
               std::shared_ptr<const void> memory);
  ~MpiOperation();
  MpiOperation(const MpiOperation&) = delete;
  MpiOperation& operator=(const MpiOperation&) = delete;

  // Start transfers, in pieces; nothing is started for 0 bytes. Throw TransportError.
  void receive(std::uint32_t peer, void* data, std::uint64_t bytes, MpiTag tag);
  void send(std::uint32_t peer, const void* data, std::uint64_t bytes, MpiTag tag);
  void broadcast(std::uint32_t root, void* data, std::uint64_t bytes);

  /// Completes when all ranks of the group have started theirs; `least_vote` then is the least of
  /// their votes. At most one per operation. Throws TransportError.
  void barrier(std::uint8_t vote);

  /// Advances the transfers; true once all are complete, after which none may be started. Throws
  /// TransportError.
  bool done();

  /// Once done, after a barrier.
  std::uint8_t least_vote() const noexcept;

  /// How many pieces have been transferred.
  std::size_t progress() const noexcept { return transferred_; }

  /// The peers whose transfers are not complete, ascending: those that have sent nothing, else
  /// those that have not received what was sent, else the roots of broadcasts that did not arrive.
  std::vector<std::uint32_t> missing() const;

 private:
  enum class Direction : std::uint8_t { receive, send, broadcast, barrier };
  struct Transfer {
    std::uint32_t peer;
    Direction direction;
  };

  using Votes = std::vector<std::uint8_t>;

  template <typename Start>
  void start(Transfer transfer, std::byte* data, std::uint64_t bytes, const char* call,
             const Start& start_piece);
  std::vector<std::uint32_t> incomplete(Direction direction) const;

  std::shared_ptr<MpiGroup> group_;
  std::uint64_t piece_;
  std::shared_ptr<const void> memory_;
  std::shared_ptr<Votes> votes_;  // of a barrier, by rank
  std::vector<MPI_Request> requests_;
  std::vector<Transfer> transfers_;  // of the requests
  std::size_t transferred_ = 0;      // requests
  bool complete_ = false;
};

}  // namespace safeshuffle::comm
