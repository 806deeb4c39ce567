#include "comm/mpi/mpi_operation.hpp"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/mpi/mpi_call.hpp"
#include "comm/mpi/mpi_library.hpp"

namespace safeshuffle::comm {
namespace {

int as_tag(MpiTag tag) {
  return static_cast<int>(tag);
}

bool is_complete(MPI_Request request) {
  int complete = 0;
  MPI_Status status;
  const int code = mpi().request_get_status(request, &complete, &status);
  return code == MPI_SUCCESS && complete != 0;
}

/// The error of the first failed request of an MPI_Testsome that returned `code`.
int first_error(int code, const std::vector<MPI_Status>& statuses) {
  if (code != MPI_ERR_IN_STATUS) return code;
  const auto failed = std::ranges::find_if(statuses, [](const MPI_Status& status) {
    return status.MPI_ERROR != MPI_SUCCESS && status.MPI_ERROR != MPI_ERR_PENDING;
  });
  return failed == statuses.end() ? code : failed->MPI_ERROR;
}

/// Keeps memory that MPI may still use until the process ends, where leak checkers find it.
void keep_forever(std::shared_ptr<const void> memory) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<const void>>;  // never destroyed
  const std::scoped_lock lock(mutex);
  kept->push_back(std::move(memory));
}

}  // namespace

MpiOperation::MpiOperation(std::shared_ptr<MpiGroup> group, std::uint64_t piece,
                           std::shared_ptr<const void> memory)
    : group_(std::move(group)), piece_(piece), memory_(std::move(memory)) {}

MpiOperation::~MpiOperation() {
  if (complete_) return;
  group_->break_off();
  keep_forever(std::move(memory_));
  keep_forever(std::move(votes_));
}

template <typename Start>
void MpiOperation::start(Transfer transfer, std::byte* data, std::uint64_t bytes, const char* call,
                         const Start& start_piece) {
  for (std::uint64_t begin = 0; begin < bytes; begin += piece_) {
    const int count = static_cast<int>(std::min(piece_, bytes - begin));
    transfers_.push_back(transfer);
    requests_.push_back(mpi().request_null);
    check_mpi(start_piece(data + begin, count, &requests_.back()), call);
  }
}

void MpiOperation::receive(std::uint32_t peer, void* data, std::uint64_t bytes, MpiTag tag) {
  start({peer, Direction::receive}, static_cast<std::byte*>(data), bytes, "MPI_Irecv",
        [&](std::byte* at, int count, MPI_Request* request) {
          return mpi().irecv(at, count, mpi().byte, static_cast<int>(peer), as_tag(tag),
                             group_->comm(), request);
        });
}

void MpiOperation::send(std::uint32_t peer, const void* data, std::uint64_t bytes, MpiTag tag) {
  // MPI only reads what it sends.
  start({peer, Direction::send}, static_cast<std::byte*>(const_cast<void*>(data)), bytes,
        "MPI_Isend", [&](std::byte* at, int count, MPI_Request* request) {
          return mpi().isend(at, count, mpi().byte, static_cast<int>(peer), as_tag(tag),
                             group_->comm(), request);
        });
}

void MpiOperation::broadcast(std::uint32_t root, void* data, std::uint64_t bytes) {
  start({root, Direction::broadcast}, static_cast<std::byte*>(data), bytes, "MPI_Ibcast",
        [&](std::byte* at, int count, MPI_Request* request) {
          return mpi().ibcast(at, count, mpi().byte, static_cast<int>(root), group_->comm(),
                              request);
        });
}

// No rank has all votes before every rank has sent its own. Open MPI gathers them in one round,
// where a barrier takes log2(ranks) rounds and a reduction twice as many.
void MpiOperation::barrier(std::uint8_t vote) {
  votes_ = std::make_shared<Votes>(group_->size());
  (*votes_)[group_->rank()] = vote;
  transfers_.push_back({group_->rank(), Direction::barrier});
  requests_.push_back(mpi().request_null);
  check_mpi(mpi().iallgather(mpi().in_place, 0, mpi().datatype_null, votes_->data(), 1, mpi().byte,
                             group_->comm(), &requests_.back()),
            "MPI_Iallgather");
}

std::uint8_t MpiOperation::least_vote() const noexcept {
  return std::ranges::min(*votes_);
}

bool MpiOperation::done() {
  if (complete_) return true;
  int transferred = 0;  // or MPI_UNDEFINED, if no request is left
  std::vector<int> indices(requests_.size());
  std::vector<MPI_Status> statuses(requests_.size());
  const int code = mpi().testsome(static_cast<int>(requests_.size()), requests_.data(),
                                  &transferred, indices.data(), statuses.data());
  check_mpi(first_error(code, statuses), "MPI_Testsome");
  transferred_ += static_cast<std::size_t>(std::max(transferred, 0));
  complete_ = transferred_ == requests_.size();
  return complete_;
}

std::vector<std::uint32_t> MpiOperation::missing() const {
  for (const Direction direction : {Direction::receive, Direction::send, Direction::broadcast}) {
    std::vector<std::uint32_t> peers = incomplete(direction);
    std::erase(peers, group_->rank());
    if (!peers.empty()) return peers;
  }
  return {};
}

std::vector<std::uint32_t> MpiOperation::incomplete(Direction direction) const {
  std::vector<std::uint32_t> peers;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (transfers_[i].direction != direction || is_complete(requests_[i])) continue;
    peers.push_back(transfers_[i].peer);
  }
  std::ranges::sort(peers);
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

}  // namespace safeshuffle::comm
