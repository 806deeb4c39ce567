#include "pipeline/report_wire.hpp"

#include <cstdint>

#include "core/wire.hpp"

namespace safeshuffle::pipeline {

std::string encode(const RankReport& rank) {
  core::WireWriter out;
  for (const double seconds : rank.phases) out.put(seconds);
  out.put(rank.total_seconds)
      .put(rank.cpu_seconds)
      .put(rank.first_tensor_seconds)
      .put(rank.read_busy_seconds)
      .put(rank.read_hidden_seconds);
  out.put(std::uint64_t{rank.rank}).put(rank.read_bytes).put(rank.sent_bytes);
  out.put(rank.received_bytes).put(rank.kept_bytes).put(rank.peak_device_bytes);
  out.put(rank.peak_pinned_bytes).put(rank.peak_resident_bytes).put(rank.peak_mapped_bytes);
  out.put(rank.io_path);
  out.put(rank.host).put(std::uint64_t{rank.cores}).put(rank.device);
  out.put(rank.transport_device_bytes).put(rank.packer_device_bytes).put(rank.reader_cpus);
  out.put(rank.direct_bytes).put(rank.buffered_bytes).put(rank.gds_bytes);
  out.put(rank.in_place_bytes).put(rank.fallback_files);
  out.put(std::uint64_t{rank.reader_threads}).put(rank.reader_chunk);
  out.put(std::uint64_t{rank.cached_share.has_value()}).put(rank.cached_share.value_or(0));
  const CacheUse cache = rank.cache.value_or(CacheUse{});
  out.put(std::uint64_t{rank.cache.has_value()}).put(cache.planned);
  out.put(cache.before).put(cache.after).put(cache.dropped).put(cache.unknown);
  out.put(std::uint64_t{rank.fallbacks.size()});
  for (const std::string& fallback : rank.fallbacks) out.put(fallback);
  out.put(std::uint64_t{rank.read_choices.size()});
  for (const ReadChoice& choice : rank.read_choices) {
    out.put(std::uint64_t{choice.direct}).put(choice.reason).put(choice.bytes);
  }
  for (const Span& span : rank.spans) {
    out.put(static_cast<std::uint64_t>(span.track)).put(span.name).put(span.begin);
    out.put(span.seconds);
  }
  return out.take();
}

namespace {

ReadChoice decode_choice(core::WireReader& in) {
  ReadChoice choice;
  choice.direct = in.number() != 0;
  choice.reason = in.text();
  choice.bytes = in.number();
  return choice;
}

CacheUse decode_cache_use(core::WireReader& in) {
  CacheUse cache;
  cache.planned = in.number();
  cache.before = in.number();
  cache.after = in.number();
  cache.dropped = in.number();
  cache.unknown = in.number();
  return cache;
}

Span decode_span(core::WireReader& in) {
  Span span;
  span.track = static_cast<Span::Track>(in.number());
  span.name = in.text();
  span.begin = in.real();
  span.seconds = in.real();
  return span;
}

}  // namespace

RankReport decode_rank_report(std::string_view bytes) {
  core::WireReader in(bytes);
  RankReport rank;
  for (double& seconds : rank.phases) seconds = in.real();
  rank.total_seconds = in.real();
  rank.cpu_seconds = in.real();
  rank.first_tensor_seconds = in.real();
  rank.read_busy_seconds = in.real();
  rank.read_hidden_seconds = in.real();
  rank.rank = static_cast<std::uint32_t>(in.number());
  rank.read_bytes = in.number();
  rank.sent_bytes = in.number();
  rank.received_bytes = in.number();
  rank.kept_bytes = in.number();
  rank.peak_device_bytes = in.number();
  rank.peak_pinned_bytes = in.number();
  rank.peak_resident_bytes = in.number();
  rank.peak_mapped_bytes = in.number();
  rank.io_path = in.text();
  rank.host = in.text();
  rank.cores = static_cast<unsigned>(in.number());
  rank.device = in.text();
  rank.transport_device_bytes = in.number();
  rank.packer_device_bytes = in.number();
  rank.reader_cpus = in.text();
  rank.direct_bytes = in.number();
  rank.buffered_bytes = in.number();
  rank.gds_bytes = in.number();
  rank.in_place_bytes = in.number();
  rank.fallback_files = in.number();
  rank.reader_threads = static_cast<unsigned>(in.number());
  rank.reader_chunk = in.number();
  const bool has_cached_share = in.number() != 0;
  const double cached_share = in.real();
  if (has_cached_share) rank.cached_share = cached_share;
  const bool has_cache = in.number() != 0;
  const CacheUse cache = decode_cache_use(in);
  if (has_cache) rank.cache = cache;
  for (std::uint64_t left = in.number(); left > 0; --left) rank.fallbacks.push_back(in.text());
  for (std::uint64_t left = in.number(); left > 0; --left) {
    rank.read_choices.push_back(decode_choice(in));
  }
  while (!in.at_end()) rank.spans.push_back(decode_span(in));
  return rank;
}

}  // namespace safeshuffle::pipeline
