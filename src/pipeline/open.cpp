#include "pipeline/open.hpp"

#include <cstddef>
#include <utility>

#include "comm/control/agreement.hpp"
#include "core/process.hpp"
#include "core/wire.hpp"
#include "format/checkpoint.hpp"
#include "pipeline/limits.hpp"
#include "pipeline/probe_place.hpp"
#include "pipeline/tp_rules.hpp"
#include "plan/cost_fields.hpp"
#include "source/discover.hpp"
#include "source/files.hpp"

namespace safeshuffle {
namespace pipeline {
namespace {

// What rank 0 finds, or was given, and sends to the others.
struct Found {
  format::Listing listing;
  std::string rules_json;
  Costs costs;
};

std::string encode(const Found& found) {
  core::WireWriter out;
  for (const plan::CostField& field : plan::cost_fields) out.put(found.costs.*field.value);
  out.put(found.rules_json).put(found.listing.config_path).put(found.listing.config_json);
  out.put(found.listing.index_path).put(found.listing.index_json);
  for (const std::string& file : found.listing.files) out.put(file);
  return out.take();
}

Found decode_found(const std::string& bytes) {
  core::WireReader in(bytes);
  Found found;
  for (const plan::CostField& field : plan::cost_fields) found.costs.*field.value = in.real();
  found.rules_json = in.text();
  found.listing.config_path = in.text();
  found.listing.config_json = in.text();
  found.listing.index_path = in.text();
  found.listing.index_json = in.text();
  while (!in.at_end()) found.listing.files.push_back(in.text());
  return found;
}

// Paths of the checkpoint's files, index, config.json and rule file.
std::vector<std::string> inputs_of(const format::Listing& listing, const std::string& tp_plan) {
  std::vector<std::string> inputs = listing.files;
  for (const std::string& path : {listing.config_path, listing.index_path, rules_path(tp_plan)}) {
    if (!path.empty()) inputs.push_back(path);
  }
  return inputs;
}

// Finding the files may take longer than the time-out, as many small steps or one computation.
source::Pulse pulse_of(const comm::Heartbeat& beat) {
  return {beat, [&beat](const auto& computation) { comm::beat_during(beat, computation); }};
}

// Inodes are valid for this rank only: on other nodes, the same file may have a different one.
std::string read_headers(const source::Source& source, const std::vector<std::string>& files,
                         const comm::Control& control, const comm::Heartbeat& beat,
                         std::vector<std::uint64_t>& inodes) {
  core::WireWriter out;
  out.put(core::node_id());
  for (std::size_t i = control.rank(); i < files.size(); i += control.size()) {
    const format::RawHeader header = source::read_header(source, files[i]);
    out.put(header.json).put(header.file_size);
    out.put(static_cast<std::uint64_t>(header.modified_ns)).put(header.cached_share);
    inodes[i] = header.inode;
    beat();
  }
  return out.take();
}

// What all ranks together have read.
struct Headers {
  std::vector<format::RawHeader> files;
  std::vector<std::string> nodes;  // by rank
};

Headers decode_headers(const std::vector<std::string>& by_rank,
                       const std::vector<std::uint64_t>& inodes) {
  const std::size_t files = inodes.size();
  Headers headers{std::vector<format::RawHeader>(files), {}};
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    core::WireReader in(by_rank[rank]);
    headers.nodes.push_back(in.text());
    for (std::size_t i = rank; i < files; i += by_rank.size()) {
      format::RawHeader& header = headers.files[i];
      header.json = in.text();
      header.file_size = in.number();
      header.modified_ns = static_cast<std::int64_t>(in.number());
      header.cached_share = in.real();
      header.inode = inodes[i];
    }
  }
  return headers;
}

double cached_share(const std::vector<format::RawHeader>& files) {
  double bytes = 0;
  double cached = 0;
  for (const format::RawHeader& file : files) {
    bytes += static_cast<double>(file.file_size);
    cached += file.cached_share * static_cast<double>(file.file_size);
  }
  return bytes > 0 ? cached / bytes : 0;
}

// What is in the page cache of one node says nothing about the others.
Site site_of(const Headers& headers, DeviceKind device, const Costs& costs) {
  const std::uint32_t nodes = node_count(headers.nodes);
  return {device, nodes, nodes == 1 ? cached_share(headers.files) : 0, costs};
}

}  // namespace

Opened open_together(const source::Source& source, const std::vector<std::string>& paths,
                     const Options& options, DeviceKind device, comm::Control& control) {
  const std::chrono::milliseconds timeout = timeout_of(options);
  const auto find = [&](const comm::Heartbeat& beat) -> std::string {
    if (control.rank() != 0) return {};
    const Found found{source::discover(source, paths, pulse_of(beat)), read_rules(options.tp_plan),
                      options.plan.site.costs};
    std::string encoded;
    comm::beat_during(beat, [&] { encoded = encode(found); });
    return encoded;
  };
  const auto told = comm::agree_with_heartbeat(control, timeout, find);
  const Found found = decode_found(told.front());

  std::vector<std::uint64_t> inodes(found.listing.files.size());
  const auto read = [&](const comm::Heartbeat& beat) {
    return read_headers(source, found.listing.files, control, beat, inodes);
  };
  const auto raw = comm::agree_with_heartbeat(control, timeout, read);

  Checkpoint checkpoint;
  Site site;
  checkpoint.config_json = found.listing.config_json;
  TpPlan rules = TpPlan::replicate_all();
  comm::agree_on_computation(control, timeout, [&]() -> std::string {
    const Headers headers = decode_headers(raw, inodes);
    format::Contents contents = format::parse_contents(found.listing, headers.files);
    site = site_of(headers, device, found.costs);
    checkpoint.cached_share = site.cached_share;
    checkpoint.catalog = std::move(contents.catalog);
    checkpoint.sharded_state = std::move(contents.sharded_state);
    rules = make_tp_plan(options, found.rules_json, checkpoint, control.size());
    return {};
  });
  return {std::move(checkpoint), std::move(rules), site, inputs_of(found.listing, options.tp_plan)};
}

}  // namespace pipeline

Checkpoint open_checkpoint(const std::vector<std::string>& paths) {
  const source::Source& files = source::files();
  const format::Listing listing = source::discover(files, paths);
  std::vector<format::RawHeader> headers;
  headers.reserve(listing.files.size());
  for (const std::string& file : listing.files) headers.push_back(source::read_header(files, file));
  format::Contents contents = format::parse_contents(listing, headers);
  return {std::move(contents.catalog), listing.config_json, std::move(contents.sharded_state),
          pipeline::cached_share(headers)};
}

Checkpoint open_checkpoint(const std::string& path) {
  return open_checkpoint(std::vector<std::string>{path});
}

TpPlan select_tp_plan(const Options& options, const Checkpoint& checkpoint, std::uint32_t world) {
  return pipeline::make_tp_plan(options, pipeline::read_rules(options.tp_plan), checkpoint, world);
}

}  // namespace safeshuffle
