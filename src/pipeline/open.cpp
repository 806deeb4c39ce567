#include "pipeline/open.hpp"

#include <cstddef>
#include <utility>

#include "safeshuffle/error.hpp"

#include "comm/control/agreement.hpp"
#include "core/error_wire.hpp"
#include "core/process.hpp"
#include "core/wire.hpp"
#include "format/checkpoint.hpp"
#include "format/model_files.hpp"
#include "io/policy.hpp"
#include "pipeline/limits.hpp"
#include "pipeline/selection.hpp"
#include "pipeline/tp_rules.hpp"
#include "plan/cost_fields.hpp"
#include "source/discover.hpp"
#include "source/header_reader.hpp"
#include "source/mirrored.hpp"
#include "source/select.hpp"

namespace safeshuffle {

static auto fields(core::As<Costs> auto& costs) {
  return std::apply([&](const auto&... field) { return std::tie(costs.*field.value...); },
                    plan::cost_fields);
}

namespace pipeline {
namespace {

// What rank 0 finds, or was given, and sends to the others.
struct Found {
  format::Listing listing;
  std::string rules_json;
  Costs costs;
  std::string costs_origin;
  bool reads_directly = true;
};

// All but the index, which rank 0 alone checks.
auto fields(core::As<Found> auto& found) {
  return std::tie(found.costs, found.costs_origin, found.reads_directly, found.rules_json,
                  found.listing.config_path, found.listing.config_json, found.listing.index_path,
                  found.listing.directory, found.listing.warnings, found.listing.files);
}

// Errors other than a refusal will recur when the file is read, and are reported then.
bool has_direct_reads(const source::Source& source, const std::string& file) try {
  source.open(file, source::Access::direct);
  return true;
} catch (const IoError&) {
  return false;
}

// How files that are not in the page cache are read; they are all on one filesystem.
bool reads_directly(const source::Source& source, const std::string& file, const Options& options) {
  if (options.direct == DirectIo::off || source.is_remote(file)) return false;
  if (options.direct == DirectIo::on) return has_direct_reads(source, file);
  const auto handle = source.open(file, source::Access::cached);
  std::optional<std::uint64_t> cached;
  const bool local = handle->is_local();
  if (local && (handle->cached_bytes(0, 1) || handle->sampled_cached_bytes(0, 1))) cached = 0;
  return io::automatic_access(local, 1, cached).direct && has_direct_reads(source, file);
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

// A thread is worth its start for what takes milliseconds.
format::FileHeader parse(const format::RawHeader& raw, const std::string& path,
                         const comm::Heartbeat& beat) {
  constexpr std::size_t long_header = std::size_t{1} << 20;
  format::FileHeader header;
  const auto parse_it = [&] { header = format::parse_file_header(raw, path); };
  raw.json.size() < long_header ? parse_it() : comm::beat_during(beat, parse_it);
  return header;
}

std::vector<std::string> own_files(const comm::Control& control,
                                   const std::vector<std::string>& files) {
  std::vector<std::string> own;
  for (std::size_t i = control.rank(); i < files.size(); i += control.size()) {
    own.push_back(files[i]);
  }
  return own;
}

// Each rank reads and parses its files, because parsing takes longer than reading.
std::string read_headers(const source::Source& source, const std::vector<std::string>& files,
                         const comm::Control& control, const comm::Heartbeat& beat,
                         std::vector<std::uint64_t>& inodes) {
  source::HeaderReader reader(source, own_files(control, files));
  core::WireWriter out;
  out.put(core::node_id());
  for (std::size_t i = control.rank(); i < files.size(); i += control.size()) {
    const format::FileHeader header = parse(reader.next(), files[i], beat);
    encode(header, out);
    inodes[i] = header.inode;
    beat();
  }
  return out.take();
}

// The share of the files' bytes that is in the page cache.
class CachedShare {
 public:
  void add(const format::FileHeader& file) {
    bytes_ += static_cast<double>(file.file_size);
    cached_ += file.cached_share.value_or(0) * static_cast<double>(file.file_size);
    all_known_ = all_known_ && file.cached_share;
  }
  // As far as it is known.
  double at_least() const { return bytes_ > 0 ? cached_ / bytes_ : 0; }
  std::optional<double> value() const {
    return all_known_ ? std::optional(at_least()) : std::nullopt;
  }

 private:
  double bytes_ = 0;
  double cached_ = 0;
  bool all_known_ = true;
};

// What all ranks together have read, file by file.
class Headers {
 public:
  Headers(const std::vector<std::string>& by_rank, const std::vector<std::uint64_t>& inodes)
      : readers_(by_rank.begin(), by_rank.end()), inodes_(inodes) {
    for (core::WireReader& reader : readers_) nodes_.push_back(reader.text());
  }

  format::FileHeader next() {
    format::FileHeader header = format::decode_file_header(readers_[file_ % readers_.size()]);
    header.inode = inodes_[file_++];
    cached_.add(header);
    return header;
  }

  // By rank.
  const std::vector<std::string>& nodes() const noexcept { return nodes_; }

  // Of the files up to now.
  const CachedShare& cached_share() const noexcept { return cached_; }

 private:
  std::vector<core::WireReader> readers_;
  const std::vector<std::uint64_t>& inodes_;
  std::vector<std::string> nodes_;
  std::size_t file_ = 0;
  CachedShare cached_;
};

// What is in the page cache of one node says nothing about the others.
Site site_of(const Headers& headers, DeviceKind device, const Found& found) {
  const std::uint32_t nodes = core::node_count(headers.nodes());
  return {device,
          nodes,
          nodes == 1 ? headers.cached_share().at_least() : 0,
          found.reads_directly,
          found.costs,
          found.costs_origin};
}

// Of a directory, what its files' names have not shown to be adapters.
void leave_adapters_out(const format::Listing& listing, Checkpoint& checkpoint) {
  if (listing.directory.empty() || checkpoint.sharded_state) return;
  std::vector<std::string> names;
  std::vector<std::uint32_t> tensors;
  for (const FileInfo& file : format::adapter_files(checkpoint.catalog)) {
    names.push_back(file.path.substr(file.path.rfind('/') + 1));
    for (std::uint32_t i = 0; i < file.tensor_count; ++i) tensors.push_back(file.first_tensor + i);
  }
  if (names.empty()) return;
  if (tensors.size() == checkpoint.catalog.tensors().size()) {
    throw IoError(ErrorRecord{.file = listing.directory, .cause = format::only_adapters(names)});
  }
  checkpoint.warnings.push_back(format::adapters_warning(names));
  checkpoint.catalog = format::without(checkpoint.catalog, tensors);
}

// Empty if there is nothing to tell.
std::string encode(const format::IndexFindings& findings) {
  if (findings.copies.empty() && findings.mismatches.empty()) return {};
  return core::to_wire(std::tie(findings.copies, findings.mismatches));
}

format::IndexFindings decode_findings(const std::string& bytes) {
  format::IndexFindings findings;
  auto values = std::tie(findings.copies, findings.mismatches);
  core::WireReader in(bytes);
  get(in, values);
  return findings;
}

void apply(format::IndexFindings findings, Checkpoint& checkpoint) {
  checkpoint.index_mismatches = std::move(findings.mismatches);
  if (findings.copies.empty()) return;
  checkpoint.warnings.push_back(format::copies_warning(checkpoint.catalog, findings.copies));
  checkpoint.catalog = format::without(checkpoint.catalog, findings.copies);
}

Opened open_from_place(const source::Source& source, const std::vector<std::string>& paths,
                       const Options& options, DeviceKind device, comm::Control& control) {
  const std::chrono::milliseconds timeout = timeout_of(options);
  format::Index index;  // on rank 0
  const auto find = [&](const comm::Heartbeat& beat) -> std::string {
    if (control.rank() != 0) return {};
    Found found{source::discover(source, paths, pulse_of(beat)), read_rules(options.tp_plan),
                options.plan.site.costs, options.plan.site.costs_origin};
    const std::string& first = found.listing.files.front();
    found.reads_directly = reads_directly(source, first, options);
    if (source::is_url(first)) {
      if (found.costs_origin.empty()) found.costs_origin = "defaults for URLs";
      found.costs = with_defaults(found.costs, default_remote_costs());
    } else {
      found.costs.request_seconds = 0;  // probed for a URL, whose files are in the cache
    }
    std::string encoded;
    comm::beat_during(beat, [&] { encoded = core::to_wire(found); });
    index = std::move(found.listing.index);
    return encoded;
  };
  const auto told = comm::agree_with_heartbeat(control, timeout, find);
  auto found = core::from_wire<Found>(told.front());
  found.listing.index = std::move(index);

  std::vector<std::uint64_t> inodes(found.listing.files.size());
  const auto read = [&](const comm::Heartbeat& beat) {
    return read_headers(source, found.listing.files, control, beat, inodes);
  };
  const auto raw = comm::agree_with_heartbeat(control, timeout, read);

  Checkpoint checkpoint;
  Site site;
  std::optional<double> cached_share;
  checkpoint.config_json = found.listing.config_json;
  checkpoint.warnings = std::move(found.listing.warnings);
  TpPlan rules = TpPlan::replicate_all();
  const auto findings = comm::agree_on_computation(control, timeout, [&]() -> std::string {
    Headers headers(raw, inodes);
    format::Contents contents = format::join_headers(found.listing, [&] { return headers.next(); });
    site = site_of(headers, device, found);
    cached_share = headers.cached_share().value();
    checkpoint.cached_share = site.cached_share;
    checkpoint.reads_directly = site.reads_directly;
    format::IndexFindings mine;
    if (control.rank() == 0) mine = format::compare_with_index(found.listing, contents);
    check_mismatches(mine.mismatches, options.selection);
    checkpoint.catalog = std::move(contents.catalog);
    checkpoint.sharded_state = std::move(contents.sharded_state);
    checkpoint.aliases = std::move(contents.aliases);
    leave_adapters_out(found.listing, checkpoint);
    rules = make_tp_plan(options, found.rules_json, checkpoint, control.size());
    return encode(mine);
  });
  if (!findings.front().empty()) {
    comm::agree_on_computation(control, timeout, [&]() -> std::string {
      apply(decode_findings(findings.front()), checkpoint);
      return {};
    });
  }
  return {std::move(checkpoint), std::move(rules), site, cached_share,
          inputs_of(found.listing, options.tp_plan)};
}

Checkpoint open_alone(const source::Source& source, const std::vector<std::string>& paths) {
  format::Listing listing = source::discover(source, paths);
  source::HeaderReader reader(source, listing.files);
  CachedShare cached;
  auto file = listing.files.begin();
  format::Contents contents = format::join_headers(listing, [&] {
    format::FileHeader header = format::parse_file_header(reader.next(), *file++);
    cached.add(header);
    return header;
  });
  format::IndexFindings findings = format::compare_with_index(listing, contents);
  Checkpoint checkpoint{std::move(contents.catalog),
                        std::move(listing.config_json),
                        std::move(contents.sharded_state),
                        cached.at_least(),
                        reads_directly(source, listing.files.front(), {}),
                        std::move(listing.warnings),
                        std::move(contents.aliases),
                        {}};
  apply(std::move(findings), checkpoint);
  leave_adapters_out(listing, checkpoint);
  return checkpoint;
}

}  // namespace

Opened open_together(const source::Source& source, const std::vector<std::string>& paths,
                     const Options& options, DeviceKind device, comm::Control& control) {
  return source::from_one_place(
      source, [&] { return open_from_place(source, paths, options, device, control); });
}

}  // namespace pipeline

Checkpoint open_checkpoint(const std::vector<std::string>& paths, const RemoteOptions& remote) {
  const auto source = source::make_source(remote);
  return source::from_one_place(*source, [&] { return pipeline::open_alone(*source, paths); });
}

Checkpoint open_checkpoint(const std::string& path, const RemoteOptions& remote) {
  return open_checkpoint(std::vector<std::string>{path}, remote);
}

TpPlan select_tp_plan(const Options& options, const Checkpoint& checkpoint, std::uint32_t world) {
  return pipeline::make_tp_plan(options, pipeline::read_rules(options.tp_plan), checkpoint, world);
}

}  // namespace safeshuffle
