#include "c_api/group.hpp"

#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "safeshuffle/bootstrap.hpp"
#include "safeshuffle/error.hpp"

#include "c_api/error.hpp"

using namespace safeshuffle;
using c_api::guarded;

struct safeshuffle_gathered {
  std::vector<std::optional<std::string>> texts;
  std::optional<ErrorRecord> failure;
};

namespace {

DeviceKind kind_named(const std::string& text) {
  for (const DeviceKind kind : {DeviceKind::host, DeviceKind::cuda, DeviceKind::automatic}) {
    if (name(kind) == text) return kind;
  }
  throw ConfigError("the device must be host, cuda or auto, not '" + text + "'");
}

std::vector<std::string> take_texts(safeshuffle_gathered& all) {
  if (all.failure) raise(*all.failure);
  std::vector<std::string> texts;
  for (std::optional<std::string>& text : all.texts) {
    if (!text) {
      throw TransportError("the caller's all-gather returned nothing of rank " +
                           std::to_string(texts.size()));
    }
    texts.push_back(std::move(*text));
  }
  return texts;
}

AllGather all_gather_of(const safeshuffle_bootstrap& bootstrap) {
  if (bootstrap.all_gather == nullptr) return {};
  return [gather = bootstrap.all_gather, context = bootstrap.context, size = bootstrap.size](
             const std::string& mine, std::chrono::milliseconds timeout) {
    safeshuffle_gathered all{std::vector<std::optional<std::string>>(size), {}};
    gather(context, mine.data(), mine.size(), std::chrono::duration<double>(timeout).count(), &all);
    return take_texts(all);
  };
}

Bootstrap bootstrap_of(const safeshuffle_bootstrap& given) {
  Bootstrap bootstrap{.rank = given.rank,
                      .size = given.size,
                      .local_rank = given.local_rank,
                      .address = given.address == nullptr ? "" : given.address,
                      .all_gather = all_gather_of(given)};
  if (given.timeout_seconds > 0) {
    bootstrap.timeout = std::chrono::milliseconds(std::llround(given.timeout_seconds * 1000));
  }
  return bootstrap;
}

}  // namespace

void safeshuffle_gathered_set(safeshuffle_gathered* all, uint32_t rank, const void* data,
                              size_t bytes) {
  if (rank < all->texts.size()) all->texts[rank].emplace(static_cast<const char*>(data), bytes);
}

void safeshuffle_gathered_fail(safeshuffle_gathered* all, uint32_t kind, int32_t rank,
                               const char* cause) {
  all->failure =
      ErrorRecord{.kind = kind == SAFESHUFFLE_TIMEOUT ? ErrorKind::timeout : ErrorKind::transport,
                  .rank = rank,
                  .cause = std::string("the caller's all-gather: ") + cause};
}

safeshuffle_error* safeshuffle_group_open(const safeshuffle_bootstrap* bootstrap,
                                          safeshuffle_group** group) {
  return guarded([&] {
    const Device device{kind_named(bootstrap->device), bootstrap->ordinal};
    *group = new safeshuffle_group{from_bootstrap(bootstrap_of(*bootstrap), device)};
  });
}

void safeshuffle_group_free(safeshuffle_group* group) {
  delete group;
}
