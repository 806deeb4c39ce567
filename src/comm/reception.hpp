// Rank 0's side of a rendezvous: who has come, and what they are told.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/rendezvous.hpp"
#include "comm/rendezvous_protocol.hpp"

namespace safeshuffle::comm {

/// The list of guests, and the answer they wait for. Knows nothing of how guests come and go. Not
/// thread-safe.
class Reception {
 public:
  Reception(const Meeting& meeting, std::string answer);

  /// A rank has come. Returns nothing if it is to wait for the answer, else what it is told at
  /// once. One that contradicts the others is refused.
  std::optional<std::string> greet(const Greeting& greeting);

  /// Something has come that cannot be a rank of this meeting. Returns what it is told; that
  /// becomes the answer to all, unless an answer is released already.
  std::string refuse(const std::string& cause);

  /// Releases the answer if all ranks have come or one has failed; returns whether it may be given.
  /// Called when all that have come at a time have greeted: of their failures that of the lowest
  /// rank becomes the answer.
  bool release();

  /// A rank has gone without the answer; it may come again.
  void leave(std::uint64_t rank);

  /// A rank has the answer.
  void serve(std::uint64_t rank);

  /// Ends the waiting: the answer becomes the error that names the ranks without it.
  void give_up(std::chrono::milliseconds limit);

  /// Whether all ranks have the answer.
  bool over() const noexcept;

  const std::string& answer() const noexcept { return answer_; }

 private:
  struct Guest {
    std::string nonce;  // empty: not here
    bool served = false;
  };

  std::string contradiction(const Greeting& greeting) const;
  bool all_here() const noexcept;
  std::vector<std::uint32_t> missing() const;

  Meeting meeting_;
  std::string answer_;
  bool released_;
  std::vector<Guest> guests_;                      // by rank; rank 0 is its own first guest
  std::map<std::uint64_t, ErrorRecord> failures_;  // by rank
};

}  // namespace safeshuffle::comm
