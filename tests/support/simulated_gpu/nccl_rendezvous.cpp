#include "support/simulated_gpu/nccl_rendezvous.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <span>
#include <sstream>
#include <system_error>
#include <unistd.h>

#include "support/simulated_gpu/nccl_failure.hpp"

namespace simulated_gpu {
namespace {

std::string host_identity() {
  const char* chosen = std::getenv("NCCL_HOSTID");
  if (chosen != nullptr) return chosen;
  char name[64] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

/// This rank's listening socket, and its name as long as it is needed.
class Lobby {
 public:
  Lobby(std::string directory, int rank)
      : directory_(std::move(directory)), listener_(listen_at(path_of(rank))), rank_(rank) {}

  /// The last rank to leave removes the directory: no rank leaves before all have arrived.
  ~Lobby() {
    std::error_code ignored;
    std::filesystem::remove(path_of(rank_), ignored);
    std::filesystem::remove(directory_, ignored);
  }
  Lobby(const Lobby&) = delete;
  Lobby& operator=(const Lobby&) = delete;

  std::string path_of(int rank) const { return directory_ + "/" + std::to_string(rank); }
  const Descriptor& listener() const noexcept { return listener_; }

 private:
  std::string directory_;
  Descriptor listener_;
  int rank_;
};

bool share_gpu(const Introduction& one, const Introduction& other) {
  return std::strcmp(one.host, other.host) == 0 && std::strcmp(one.bus_id, other.bus_id) == 0;
}

void require_distinct_gpus(std::span<const Introduction> ranks) {
  for (const Introduction& one : ranks) {
    for (const Introduction& other : ranks.first(static_cast<std::size_t>(one.rank))) {
      if (!share_gpu(one, other)) continue;
      throw NcclFailure{ncclInvalidUsage, "Duplicate GPU: ranks " + std::to_string(other.rank) +
                                              " and " + std::to_string(one.rank) + " both use " +
                                              one.bus_id};
    }
  }
}

Introduction exchange_introductions(const Descriptor& socket, const Introduction& self,
                                    const AbortSignal& abort) {
  Introduction peer;
  send_small(socket, &self, sizeof self);
  receive_all(socket, &peer, sizeof peer, abort);
  if (peer.size != self.size || peer.rank == self.rank) {
    throw NcclFailure{ncclInvalidUsage, "ranks disagree about the communicator"};
  }
  return peer;
}

}  // namespace

Introduction introduce(int rank, int size, const std::string& bus_id) {
  Introduction self;
  self.rank = rank;
  self.size = size;
  std::snprintf(self.host, sizeof self.host, "%s", host_identity().c_str());
  std::snprintf(self.bus_id, sizeof self.bus_id, "%s", bus_id.c_str());
  return self;
}

ncclUniqueId make_unique_id() {
  std::random_device random;
  std::ostringstream name;
  name << "simulated-nccl-" << std::hex << random() << random() << random();
  const std::string path = (std::filesystem::temp_directory_path() / name.str()).string();
  ncclUniqueId id{};
  std::snprintf(id.internal, sizeof id.internal, "%s", path.c_str());
  return id;
}

std::vector<Descriptor> meet(const ncclUniqueId& id, const Introduction& self,
                             const AbortSignal& abort) {
  const Lobby lobby(id.internal, self.rank);
  std::vector<Descriptor> sockets(static_cast<std::size_t>(self.size));
  std::vector<Introduction> ranks(sockets.size(), self);
  const auto keep = [&](Descriptor socket) {
    const Introduction peer = exchange_introductions(socket, self, abort);
    const auto index = static_cast<std::size_t>(peer.rank);
    ranks.at(index) = peer;
    sockets.at(index) = std::move(socket);
  };
  for (int rank = 0; rank < self.rank; ++rank) keep(connect_to(lobby.path_of(rank), abort));
  for (int rank = self.rank + 1; rank < self.size; ++rank) {
    keep(accept_from(lobby.listener(), abort));
  }
  require_distinct_gpus(ranks);
  return sockets;
}

}  // namespace simulated_gpu
