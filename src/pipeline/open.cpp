#include "pipeline/open.hpp"

#include <cstddef>
#include <utility>

#include "comm/control/agreement.hpp"
#include "core/wire.hpp"
#include "format/checkpoint.hpp"
#include "pipeline/limits.hpp"
#include "pipeline/tp_rules.hpp"
#include "source/discover.hpp"
#include "source/files.hpp"

namespace safeshuffle {
namespace pipeline {
namespace {

// What rank 0 finds and sends to the others.
struct Found {
  format::Listing listing;
  std::string rules_json;
};

std::string encode(const Found& found) {
  core::WireWriter out;
  out.put(found.rules_json).put(found.listing.config_path).put(found.listing.config_json);
  out.put(found.listing.index_path).put(found.listing.index_json);
  for (const std::string& file : found.listing.files) out.put(file);
  return out.take();
}

Found decode_found(const std::string& bytes) {
  core::WireReader in(bytes);
  Found found;
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
  for (std::size_t i = control.rank(); i < files.size(); i += control.size()) {
    const format::RawHeader header = source::read_header(source, files[i]);
    out.put(header.json).put(header.file_size);
    out.put(static_cast<std::uint64_t>(header.modified_ns));
    inodes[i] = header.inode;
    beat();
  }
  return out.take();
}

std::vector<format::RawHeader> decode_headers(const std::vector<std::string>& by_rank,
                                              const std::vector<std::uint64_t>& inodes) {
  const std::size_t files = inodes.size();
  std::vector<format::RawHeader> headers(files);
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    core::WireReader in(by_rank[rank]);
    for (std::size_t i = rank; i < files; i += by_rank.size()) {
      headers[i].json = in.text();
      headers[i].file_size = in.number();
      headers[i].modified_ns = static_cast<std::int64_t>(in.number());
      headers[i].inode = inodes[i];
    }
  }
  return headers;
}

}  // namespace

Opened open_together(const source::Source& source, const std::vector<std::string>& paths,
                     const Options& options, comm::Control& control) {
  const std::chrono::milliseconds timeout = timeout_of(options);
  const auto find = [&](const comm::Heartbeat& beat) -> std::string {
    if (control.rank() != 0) return {};
    const Found found{source::discover(source, paths, pulse_of(beat)), read_rules(options.tp_plan)};
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
  checkpoint.config_json = found.listing.config_json;
  TpPlan rules = TpPlan::replicate_all();
  comm::agree_on_computation(control, timeout, [&]() -> std::string {
    format::Contents contents = format::parse_contents(found.listing, decode_headers(raw, inodes));
    checkpoint.catalog = std::move(contents.catalog);
    checkpoint.sharded_state = std::move(contents.sharded_state);
    rules = make_tp_plan(options, found.rules_json, checkpoint, control.size());
    return {};
  });
  return {std::move(checkpoint), std::move(rules), inputs_of(found.listing, options.tp_plan)};
}

}  // namespace pipeline

Checkpoint open_checkpoint(const std::vector<std::string>& paths) {
  const source::Source& files = source::files();
  const format::Listing listing = source::discover(files, paths);
  std::vector<format::RawHeader> headers;
  headers.reserve(listing.files.size());
  for (const std::string& file : listing.files) headers.push_back(source::read_header(files, file));
  format::Contents contents = format::parse_contents(listing, headers);
  return {std::move(contents.catalog), listing.config_json, std::move(contents.sharded_state)};
}

Checkpoint open_checkpoint(const std::string& path) {
  return open_checkpoint(std::vector<std::string>{path});
}

TpPlan select_tp_plan(const Options& options, const Checkpoint& checkpoint, std::uint32_t world) {
  return pipeline::make_tp_plan(options, pipeline::read_rules(options.tp_plan), checkpoint, world);
}

}  // namespace safeshuffle
