#include "comm/control/mpi_control.hpp"

#include <utility>

#include "safeshuffle/error.hpp"

#include "comm/mpi/mpi_operation.hpp"
#include "core/backoff.hpp"
#include "core/lost_peers.hpp"

namespace safeshuffle::comm {
namespace {

/// Waits until the operation is done. Throws if there is no progress for as long as the deadline
/// allows.
void wait(MpiOperation& operation, core::Deadline deadline) {
  deadline.restart();
  core::Deadline look(deadline.limit() / 8);
  core::Backoff backoff;
  for (std::size_t progress = 0; !operation.done();) {
    if (look.expired()) {
      const std::size_t before = std::exchange(progress, operation.progress());
      if (progress > before) deadline.restart();
      look.restart();
    }
    if (deadline.expired()) {
      raise(core::lost_peers("gathering from all ranks", operation.missing(), deadline.limit()));
    }
    backoff.pause();
  }
}

/// What an all_gather sends and receives.
struct Gathering {
  std::vector<std::uint64_t> sizes;
  std::vector<std::string> texts;
};

class MpiControl final : public Control {
 public:
  MpiControl(std::shared_ptr<MpiGroup> group, std::uint64_t piece)
      : Control(group->rank(), group->size()), group_(std::move(group)), piece_(piece) {}

  std::string name() const override { return "mpi"; }
  void check_thread() const override { require_mpi_thread(); }

  /// Point to point, so that a missing rank can be named.
  std::vector<std::string> all_gather(std::string_view mine, core::Deadline deadline) override {
    group_->require_usable();
    const auto gathering = std::make_shared<Gathering>();
    gathering->sizes.resize(size());
    gathering->sizes[rank()] = mine.size();
    gathering->texts.resize(size());
    gathering->texts[rank()] = mine;
    gather_sizes(gathering, deadline);
    gather_texts(gathering, deadline);
    return std::move(gathering->texts);
  }

 private:
  void gather_sizes(const std::shared_ptr<Gathering>& gathering, core::Deadline deadline) {
    std::vector<std::uint64_t>& sizes = gathering->sizes;
    MpiOperation operation(group_, piece_, gathering);
    for_each_peer([&](std::uint32_t peer) {
      operation.receive(peer, &sizes[peer], sizeof sizes[peer], MpiTag::size);
    });
    for_each_peer([&](std::uint32_t peer) {
      operation.send(peer, &sizes[rank()], sizeof sizes[rank()], MpiTag::size);
    });
    wait(operation, deadline);
  }

  void gather_texts(const std::shared_ptr<Gathering>& gathering, core::Deadline deadline) {
    std::vector<std::string>& texts = gathering->texts;
    MpiOperation operation(group_, piece_, gathering);
    for_each_peer([&](std::uint32_t peer) {
      texts[peer].resize(gathering->sizes[peer]);
      operation.receive(peer, texts[peer].data(), texts[peer].size(), MpiTag::text);
    });
    for_each_peer([&](std::uint32_t peer) {
      operation.send(peer, texts[rank()].data(), texts[rank()].size(), MpiTag::text);
    });
    wait(operation, deadline);
  }

  /// Every other rank, in a different order on each rank, so that not all send to the same one
  /// first.
  template <typename Function>
  void for_each_peer(const Function& function) const {
    for (std::uint32_t step = 1; step < size(); ++step) function((rank() + step) % size());
  }

  std::shared_ptr<MpiGroup> group_;
  std::uint64_t piece_;
};

}  // namespace

std::unique_ptr<Control> make_mpi_control(std::shared_ptr<MpiGroup> group, std::uint64_t piece) {
  return std::make_unique<MpiControl>(std::move(group), piece);
}

}  // namespace safeshuffle::comm
