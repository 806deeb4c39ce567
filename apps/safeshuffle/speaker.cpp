#include "speaker.hpp"

#include <cerrno>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>

#include "core/launcher.hpp"

#ifdef SAFESHUFFLE_WITH_MPI
#include <chrono>
#include <deque>
#include <thread>
#include <utility>

#include <mpi.h>

#include "core/deadline.hpp"
#endif

namespace safeshuffle::app {

#ifdef SAFESHUFFLE_WITH_MPI
namespace {

/// First, ranks that time out at about the same time clean up what they were writing.
constexpr std::chrono::milliseconds cleaning_time{500};

/// Time for claims to reach all ranks, even on a busy machine.
constexpr std::chrono::milliseconds claiming_time{1000};

/// Time for sent messages to leave the process.
constexpr std::chrono::milliseconds parting_time{50};

/// Only the command uses MPI_COMM_WORLD itself: the library uses duplicates.
constexpr int claim_tag = 99;

/// One rank's part in finding the speaker. All calls return at once or after a known time.
class Election {
 public:
  explicit Election(Knowledge knowledge) : knowledge_(static_cast<int>(knowledge)) {
    // A connection that breaks when the others end must not make MPI's error handler end this rank.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }

  /// Two ranks that have both sent a claim know of each other before either decides; if one of them
  /// was delayed, it learns in time that the other has decided.
  bool is_won() {
    if (size_ == 1) return true;
    if (!is_unopposed_for(cleaning_time)) return false;
    tell(claim);
    if (!is_unopposed_for(claiming_time)) return false;
    tell(decision);
    return is_unopposed_for(parting_time);
  }

 private:
  enum Stage : int { silence, claim, decision };
  struct Claim {
    int stage;
    int knowledge;
  };

  // To all, without waiting. MPI may read what is sent until the process ends.
  void tell(Stage stage) {
    stage_ = stage;
    static auto* const sent = new std::deque<Claim>;
    const Claim& mine = sent->emplace_back(Claim{stage, knowledge_});
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == rank_) continue;
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Isend(&mine, sizeof mine, MPI_BYTE, rank, claim_tag, MPI_COMM_WORLD, &request);
    }
  }

  bool is_unopposed_for(std::chrono::milliseconds time) {
    const core::Deadline end(time);
    while (!end.expired()) {
      if (hears_better()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return !hears_better();
  }

  bool hears_better() const {
    int arrived = 0;
    MPI_Status status;
    while (MPI_Iprobe(MPI_ANY_SOURCE, claim_tag, MPI_COMM_WORLD, &arrived, &status) ==
               MPI_SUCCESS &&
           arrived != 0) {
      Claim other{silence, 0};
      MPI_Recv(&other, sizeof other, MPI_BYTE, status.MPI_SOURCE, claim_tag, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
      if (goes_first(other, status.MPI_SOURCE)) return true;
    }
    return false;
  }

  bool goes_first(const Claim& other, int rank) const {
    const bool is_better = std::pair(other.knowledge, rank) < std::pair(knowledge_, rank_);
    if (other.stage == decision) return stage_ != decision || is_better;
    return is_better || (stage_ == silence && other.knowledge == knowledge_);
  }

  int knowledge_;
  int rank_ = 0;
  int size_ = 1;
  Stage stage_ = silence;
};

}  // namespace

bool speaks_for_job(Knowledge knowledge) {
  return Election(knowledge).is_won();
}
#endif

// Uses a file, which only one process can create; the launcher removes it with its directory. It
// must outlive the first process, since the launcher wakes up stopped ranks before it ends them.
bool speaks_for_node() {
  const auto directory = core::directory_of_job();
  if (!directory) return true;
  const std::string path = *directory + "/safeshuffle-has-spoken";
  const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, S_IRUSR);
  return file >= 0 || errno != EEXIST;
}

}  // namespace safeshuffle::app
