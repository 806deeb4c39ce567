// What ranks send each other of their reports, see core/wire.hpp.
#pragma once

#include <tuple>

#include "safeshuffle/report.hpp"

#include "core/wire.hpp"

namespace safeshuffle {

auto fields(core::As<ReadChoice> auto& choice) {
  return std::tie(choice.direct, choice.reason, choice.bytes);
}

auto fields(core::As<Span> auto& span) {
  return std::tie(span.track, span.name, span.begin, span.seconds);
}

auto fields(core::As<Requests> auto& requests) {
  return std::tie(requests.made, requests.repeated, requests.raced, requests.kept_bytes,
                  requests.not_kept);
}

auto fields(core::As<RankReport> auto& rank) {
  return std::tie(rank.rank, rank.host, rank.device, rank.cores, rank.phases, rank.total_seconds,
                  rank.cpu_seconds, rank.first_tensor_seconds, rank.first_layer_seconds,
                  rank.read_busy_seconds, rank.read_hidden_seconds, rank.read_bytes,
                  rank.sent_bytes, rank.received_bytes, rank.kept_bytes, rank.peak_device_bytes,
                  rank.transport_device_bytes, rank.packer_device_bytes, rank.peak_pinned_bytes,
                  rank.peak_resident_bytes, rank.io_path, rank.direct_bytes, rank.buffered_bytes,
                  rank.gds_bytes, rank.in_place_bytes, rank.read_choices, rank.requests,
                  rank.reader_threads, rank.reader_chunk, rank.reader_cpus, rank.fallback_files,
                  rank.fallbacks, rank.spans);
}

}  // namespace safeshuffle
