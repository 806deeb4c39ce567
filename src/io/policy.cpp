#include "io/policy.hpp"

#include <algorithm>

#include "core/process.hpp"
#include "source/remote/remote.hpp"

namespace safeshuffle::io {
namespace {

// On GPUs, each rank leaves one core to its other threads. On the host, the number does not depend
// on the cores: threads that wait for storage need none.
//
// For URLs, as many as there may be requests: more than the cores can serve would only delay those
// that are needed first.
unsigned default_threads(const ReadingPlace& place, const Options& options) {
  constexpr unsigned least_requests = 4;
  constexpr unsigned requests_of_core = 8;
  if (place.is_remote && options.remote.connections != 0) return options.remote.connections;
  if (place.is_remote) {
    return std::clamp(requests_of_core * place.cores / place.sharers, least_requests,
                      source::default_connections);
  }
  const core::Defaults& defaults = core::defaults_on(place.device);
  const unsigned own = std::max(place.cores / place.sharers, 1U);
  return std::clamp(own - 1, defaults.least_threads, defaults.most_threads);
}

}  // namespace

core::CpuSet usable_cpus(DeviceKind device) {
  return device == DeviceKind::cuda ? core::permitted_cpus() : core::allowed_cpus();
}

std::string shared_cpus(DeviceKind device) {
  return core::node_id() + " " + core::cpu_list(usable_cpus(device));
}

ReadingPlace reading_place(const device::Device& device, unsigned sharers) {
  ReadingPlace place;
  place.device = device.kind();
  place.usable = usable_cpus(place.device);
  place.cores =
      place.usable.empty() ? core::available_cores() : static_cast<unsigned>(place.usable.size());
  place.bound = core::allowed_cpus();
  place.sharers = sharers;
  place.near = device.near_cpus(place.usable);
  return place;
}

ReaderOptions reader_options(const Options& options, const ReadingPlace& place) {
  ReaderOptions reader;
  reader.engine = options.io;
  reader.direct = options.direct;
  reader.threads = options.threads != 0 ? options.threads : default_threads(place, options);
  reader.chunk = options.chunk != 0 ? options.chunk : core::defaults_on(place.device).chunk;
  reader.whole_chunks = place.is_remote;
  reader.read_ahead = !options.drop_cache_behind;
  return reader;
}

core::CpuSet reader_cpus(const ReadingPlace& place, unsigned threads) {
  if (place.near.size() >= threads) return place.near;
  const bool enough = place.bound.size() >= threads;
  return enough || place.usable.size() <= place.bound.size() ? core::CpuSet() : place.usable;
}

std::size_t reads_in_flight(std::uint64_t chunk) {
  constexpr std::uint64_t bytes = 256 * core::mebibyte;
  return std::clamp<std::uint64_t>(bytes / chunk, 16, 4096);
}

std::size_t ring_slots(const ReaderOptions& options, std::uint64_t slot_bytes) {
  const std::uint64_t fitting = core::most_ring_bytes / std::max<std::uint64_t>(slot_bytes, 1);
  const std::uint64_t wanted = options.engine == IoEngine::uring
                                   ? reads_in_flight(options.chunk)
                                   : std::uint64_t{2} * options.threads;
  return std::clamp<std::uint64_t>(fitting, 2, wanted);
}

// A cached byte costs a small part of what reading one directly costs, and reading one from storage
// through the page cache two to three times as much (docs/results): below this share of cached
// bytes, reading all of them directly is faster.
AccessChoice automatic_access(bool local, std::uint64_t bytes, std::optional<std::uint64_t> cached,
                              bool estimated) {
  if (!local) return {false, "not a local filesystem"};
  if (!cached) return {false, "caching unknown"};
  if (bytes - *cached <= bytes / 4) {
    return {false, estimated ? "likely cached" : "cached", *cached == bytes && !estimated};
  }
  return {true, estimated ? "likely cold" : "cold"};
}

}  // namespace safeshuffle::io
