#include "support/simulated_gpu/nccl_rendezvous.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <sstream>
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

std::string socket_name(const ncclUniqueId& id, int rank) {
  return std::string(id.internal) + "/" + std::to_string(rank);
}

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
  ncclUniqueId id{};
  std::snprintf(id.internal, sizeof id.internal, "%s", name.str().c_str());
  return id;
}

std::vector<Descriptor> meet(const ncclUniqueId& id, const Introduction& self,
                             const AbortSignal& abort) {
  const Descriptor listener = listen_at(socket_name(id, self.rank));
  std::vector<Descriptor> sockets(static_cast<std::size_t>(self.size));
  std::vector<Introduction> ranks(sockets.size(), self);
  const auto keep = [&](Descriptor socket) {
    const Introduction peer = exchange_introductions(socket, self, abort);
    const auto index = static_cast<std::size_t>(peer.rank);
    ranks.at(index) = peer;
    sockets.at(index) = std::move(socket);
  };
  for (int rank = 0; rank < self.rank; ++rank) keep(connect_to(socket_name(id, rank), abort));
  for (int rank = self.rank + 1; rank < self.size; ++rank) {
    keep(accept_from(listener, abort));
  }
  require_distinct_gpus(ranks);
  return sockets;
}

}  // namespace simulated_gpu
