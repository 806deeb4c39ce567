#include "safeshuffle/report.hpp"

#include <algorithm>
#include <iomanip>
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

#include "output/placement_json.hpp"

namespace safeshuffle {
namespace {

constexpr std::array<std::string_view, phase_count> phase_names{
    "open", "plan", "allocate", "read", "h2d", "pack", "exchange", "wait", "verify"};

constexpr std::array<std::string_view, track_count> track_names{"phases", "reads", "copies",
                                                                "stream"};

constexpr int schema_version = 1;

double gigabytes_per_second(std::uint64_t bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(bytes) / seconds / 1e9 : 0;
}

std::string hexadecimal(std::uint64_t value) {
  std::ostringstream text;
  text << std::hex << std::setw(16) << std::setfill('0') << value;
  return text.str();
}

nlohmann::ordered_json optional_json(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

nlohmann::ordered_json bottleneck_json(const Bottleneck& bottleneck) {
  return {{"phase", name(bottleneck.phase)},
          {"seconds", bottleneck.seconds},
          {"total_seconds", bottleneck.total_seconds}};
}

nlohmann::ordered_json reached_json(const Reached& reached) {
  return {{"step", name(reached.step)},
          {"ceiling", reached.ceiling},
          {"gigabytes_per_second", reached.bytes_per_second / 1e9},
          {"ceiling_gigabytes_per_second", reached.most / 1e9},
          {"share", reached.share()}};
}

nlohmann::ordered_json ceilings_json(const Ceilings& ceilings) {
  nlohmann::ordered_json json{{"probe", ceilings.probe}, {"date", ceilings.date}};
  json["steps"] = nlohmann::ordered_json::array();
  for (const Reached& reached : ceilings.steps) json["steps"].push_back(reached_json(reached));
  return json;
}

nlohmann::ordered_json choices_json(const std::vector<ReadChoice>& choices) {
  auto json = nlohmann::ordered_json::array();
  for (const ReadChoice& choice : choices) {
    json.push_back({{"read", choice.direct ? "direct" : "buffered"},
                    {"reason", choice.reason},
                    {"bytes", choice.bytes}});
  }
  return json;
}

// What is packed straight from the page cache is read in the phase, by no reader thread.
double read_seconds(const RankReport& rank) {
  return std::max(rank.read_busy_seconds, rank.phases[static_cast<std::size_t>(Phase::read)]);
}

nlohmann::ordered_json rank_json(const RankReport& rank) {
  nlohmann::ordered_json json{{"rank", rank.rank},
                              {"host", rank.host},
                              {"device", rank.device},
                              {"cores", rank.cores},
                              {"total_seconds", rank.total_seconds},
                              {"cpu_seconds", rank.cpu_seconds},
                              {"first_tensor_seconds", rank.first_tensor_seconds},
                              {"first_layer_seconds", rank.first_layer_seconds}};
  for (std::size_t i = 0; i < phase_count; ++i) json["phases"][phase_names[i]] = rank.phases[i];
  json["overlap"] = {{"read_busy_seconds", rank.read_busy_seconds},
                     {"read_hidden_seconds", rank.read_hidden_seconds}};
  json["read_bytes"] = rank.read_bytes;
  json["sent_bytes"] = rank.sent_bytes;
  json["received_bytes"] = rank.received_bytes;
  json["kept_bytes"] = rank.kept_bytes;
  json["peak_device_bytes"] = rank.peak_device_bytes;
  json["transport_device_bytes"] = rank.transport_device_bytes;
  json["packer_device_bytes"] = rank.packer_device_bytes;
  json["peak_pinned_bytes"] = rank.peak_pinned_bytes;
  json["peak_resident_bytes"] = rank.peak_resident_bytes;
  json["read_gigabytes_per_second"] = gigabytes_per_second(rank.read_bytes, read_seconds(rank));
  json["io"] = {{"path", rank.io_path},
                {"direct_bytes", rank.direct_bytes},
                {"buffered_bytes", rank.buffered_bytes},
                {"gds_bytes", rank.gds_bytes},
                {"in_place_bytes", rank.in_place_bytes},
                {"choices", choices_json(rank.read_choices)},
                {"requests", rank.requests.made},
                {"repeated_requests", rank.requests.repeated},
                {"raced_requests", rank.requests.raced},
                {"kept_bytes_of_requests", rank.requests.kept_bytes},
                {"requests_not_kept", rank.requests.not_kept},
                {"threads", rank.reader_threads},
                {"chunk", rank.reader_chunk},
                {"cpus", rank.reader_cpus},
                {"fallback_files", rank.fallback_files},
                {"fallbacks", rank.fallbacks}};
  return json;
}

nlohmann::ordered_json event_json(const RankReport& rank, const Span& span) {
  // Complete events ("X"); the format counts microseconds.
  return {{"name", span.name},      {"ph", "X"},
          {"pid", rank.rank},       {"tid", static_cast<int>(span.track)},
          {"ts", span.begin * 1e6}, {"dur", span.seconds * 1e6}};
}

std::set<Span::Track> tracks_of(const RankReport& rank) {
  std::set<Span::Track> tracks;
  for (const Span& span : rank.spans) tracks.insert(span.track);
  return tracks;
}

nlohmann::ordered_json thread_name_json(const RankReport& rank, Span::Track track) {
  return {{"name", "thread_name"},
          {"ph", "M"},
          {"pid", rank.rank},
          {"tid", static_cast<int>(track)},
          {"args", {{"name", name(track)}}}};
}

}  // namespace

std::string_view name(Phase phase) noexcept {
  return phase_names[static_cast<std::size_t>(phase)];
}

std::string_view name(Span::Track track) noexcept {
  return track_names[static_cast<std::size_t>(track)];
}

std::string to_json(const Report& report) {
  nlohmann::ordered_json json{
      {"schema_version", schema_version},
      {"version", report.version},
      {"device", report.device},
      {"transport", report.transport},
      {"world", report.ranks.size()},
      {"assignment", name(report.assignment)},
      {"assignment_reason", report.assignment_reason},
      {"order", name(report.order)},
      {"replicas", report.replicas},
      {"plan_hash", hexadecimal(report.plan_hash)},
      {"waves", report.waves},
      {"window", report.window},
      {"tensor_bytes", report.tensor_bytes},
      {"seconds", report.seconds},
      {"gigabytes_per_second", gigabytes_per_second(report.tensor_bytes, report.seconds)}};
  json["warnings"] = report.warnings;
  json["cached_share"] = optional_json(report.cached_share);
  json["placement"] = output::placement_json(report.placement);
  if (report.stage) json["pipeline_stage"] = output::stage_json(*report.stage);
  if (!report.ranks.empty()) json["bottleneck"] = bottleneck_json(bottleneck(report));
  if (report.ceilings) json["ceilings"] = ceilings_json(*report.ceilings);
  json["ranks"] = nlohmann::ordered_json::array();
  for (const RankReport& rank : report.ranks) json["ranks"].push_back(rank_json(rank));
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string to_trace_json(const Report& report) {
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  for (const RankReport& rank : report.ranks) {
    for (const Span::Track track : tracks_of(rank)) {
      events.push_back(thread_name_json(rank, track));
    }
    for (const Span& span : rank.spans) events.push_back(event_json(rank, span));
  }
  return nlohmann::ordered_json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump();
}

void add_verification(Report& report, const std::vector<double>& seconds_by_rank) {
  for (std::size_t i = 0; i < report.ranks.size(); ++i) {
    RankReport& rank = report.ranks[i];
    rank.phases[static_cast<std::size_t>(Phase::verify)] += seconds_by_rank.at(i);
    rank.total_seconds += seconds_by_rank.at(i);
  }
}

}  // namespace safeshuffle
