// The function `probe` of probe.hpp: prepares what the trials share, and runs them.
#include "safeshuffle/probe.hpp"

#include <algorithm>
#include <utility>

#include "comm/collective_call.hpp"
#include "comm/control/agreement.hpp"
#include "core/defaults.hpp"
#include "core/machine.hpp"
#include "core/page.hpp"
#include "core/process.hpp"
#include "core/text.hpp"
#include "core/wire.hpp"
#include "io/policy.hpp"
#include "pipeline/limits.hpp"
#include "pipeline/open.hpp"
#include "probe/place.hpp"
#include "probe/rig.hpp"
#include "probe/trials.hpp"
#include "probe/turns.hpp"
#include "source/select.hpp"

namespace safeshuffle {
namespace probing {
namespace {

/// How much a probe does.
struct Extent {
  Turns turns;
  std::chrono::milliseconds run{0};  ///< of reading, at most
  std::uint64_t sample_bytes = 0;    ///< per node
  std::uint64_t moved_bytes = 0;     ///< of device memory that is moved, per rank
};

constexpr std::chrono::milliseconds shortest_timeout{10'000};

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;

const Extent& extent(bool quick) {
  static const Extent brief{
      {3, 2.5}, std::chrono::milliseconds(150), 256 * mebibyte, 256 * mebibyte};
  static const Extent full{
      {7, 30}, std::chrono::milliseconds(1000), 2048 * mebibyte, 2048 * mebibyte};
  return quick ? brief : full;
}

// What a rank tells the others before it allocates anything.
struct Intent {
  bool quick = false;
  std::string host;
  std::string cpus;  // see io::shared_cpus
  std::uint64_t available_bytes = 0;
};

auto fields(core::As<Intent> auto& intent) {
  return std::tie(intent.quick, intent.host, intent.cpus, intent.available_bytes);
}

std::vector<Intent> exchange_intents(const Communicator& comm, const ProbeOptions& probe,
                                     const Options& options) {
  std::vector<Intent> intents;
  const auto mine = [&] {
    if (probe.timeout < shortest_timeout) {
      throw ConfigError("the time-out of a probe must be at least " +
                        core::seconds_text(shortest_timeout));
    }
    return core::to_wire(Intent{probe.quick, core::host_name(), io::shared_cpus(comm.device()),
                                core::available_memory_bytes()});
  };
  for (const std::string& bytes :
       comm::agree_on(comm.control(), pipeline::timeout_of(options), mine)) {
    intents.push_back(core::from_wire<Intent>(bytes));
  }
  for (std::size_t rank = 0; rank < intents.size(); ++rank) {
    if (intents[rank].quick == intents.front().quick) continue;
    throw ConfigError(ErrorRecord{
        .rank = static_cast<std::int32_t>(rank),
        .cause = "was given different options from rank 0: quick must be the same for all ranks"});
  }
  return intents;
}

/// How the ranks are spread over nodes.
struct Group {
  std::uint32_t ranks_per_node = 1;  ///< of rank 0's node
  std::uint32_t nodes = 1;
  std::uint32_t sharers = 1;          ///< see io::ReadingPlace
  std::uint64_t available_bytes = 0;  ///< on the node that has least
};

Group group_of(const std::vector<Intent>& intents, std::uint32_t rank) {
  std::vector<std::string> hosts;
  for (const Intent& intent : intents) hosts.push_back(intent.host);
  Group group;
  group.ranks_per_node = core::ranks_per_node(hosts);
  group.nodes = core::node_count(hosts);
  group.sharers =
      static_cast<std::uint32_t>(std::ranges::count(intents, intents[rank].cpus, &Intent::cpus));
  group.available_bytes =
      std::ranges::min_element(intents, {}, &Intent::available_bytes)->available_bytes;
  return group;
}

std::uint64_t file_bytes(const Catalog& catalog) {
  std::uint64_t sum = 0;
  for (const FileInfo& file : catalog.files()) sum += file.size;
  return sum;
}

/// Of the files, for one rank. The page cache has to hold it beside what else is in memory.
std::uint64_t sample_bytes(const Catalog& catalog, const Group& group, const Extent& extent,
                           std::uint32_t world) {
  std::uint64_t bytes = extent.sample_bytes;
  if (group.available_bytes != 0) bytes = std::min(bytes, group.available_bytes / 4);
  return std::min(bytes / group.ranks_per_node, file_bytes(catalog) / world);
}

/// Ranks read different parts of the files, as in a load.
Sample make_sample(const source::Source& source, const Catalog& catalog, std::uint64_t bytes,
                   const Communicator& comm) {
  const std::uint64_t begin = file_bytes(catalog) / comm.size() * comm.rank();
  return {source, catalog.files(), sample_ranges(catalog.files(), begin, bytes)};
}

std::shared_ptr<ProbeSlabs> make_slabs(device::Device& device, std::uint64_t window) {
  auto slabs = std::make_shared<ProbeSlabs>();
  slabs->bytes = window + core::page_bytes;
  for (auto& slab : slabs->memory) slab = device.allocate(slabs->bytes);
  return slabs;
}

std::unique_ptr<ProbeRig> make_rig(const std::shared_ptr<const source::Source>& source,
                                   const Catalog& catalog, const Communicator& comm,
                                   const Options& options, const Group& group,
                                   const Extent& extent) {
  device::Device& device = *comm.device_handle();
  io::ReadingPlace place = io::reading_place(device, group.sharers);
  place.is_remote = !catalog.files().empty() && source->is_remote(catalog.files().front().path);
  const io::ReaderOptions reader = io::reader_options(options, place);
  const std::uint64_t bytes = sample_bytes(catalog, group, extent, comm.size());
  const std::uint64_t window = core::defaults_on(device.kind()).window;
  const auto files = catalog.files();
  std::unique_ptr<ProbeRig> rig(new ProbeRig{.source = source,
                                             .is_remote = place.is_remote,
                                             .comm = comm,
                                             .files = {files.begin(), files.end()},
                                             .reader = reader,
                                             .reader_cpus = io::reader_cpus(place, reader.threads),
                                             .window = window,
                                             .moved_bytes = extent.moved_bytes,
                                             .most = extent.run,
                                             .timeout = pipeline::timeout_of(options),
                                             .sample = make_sample(*source, catalog, bytes, comm),
                                             .engine = {},
                                             .reader_threads = reader.threads,
                                             .slabs = make_slabs(device, window),
                                             .queue = device.make_queue(),
                                             .packer = {}});
  rig->packer = device.make_packer(*rig->queue);
  return rig;
}

// What rank 0 knows of its place and machine, the same on all.
auto description(auto& probe) {
  return std::tie(probe.place, probe.date, probe.machine.cores, probe.machine.memory_bytes,
                  probe.machine.kernel, probe.engine, probe.threads);
}

void describe_together(Probe& probe, const ProbeRig& rig) {
  const auto describe = [&] {
    const std::string path = rig.files.empty() ? std::string() : rig.files.front().path;
    probe.place = own_place(path, rig.comm.device_handle()->description());
    probe.date = core::utc_now();
    probe.machine = {core::available_cores(), core::memory_bytes(), core::kernel_release()};
    probe.engine = rig.engine;
    probe.threads = rig.reader_threads;
    return core::to_wire(description(probe));
  };
  const auto all = comm::agree_on(rig.comm.control(), rig.timeout, describe);
  core::WireReader in(all.front());
  auto values = description(probe);
  get(in, values);
}

std::uint64_t sample_of_all(const ProbeRig& rig) {
  const auto all =
      comm::agree(rig.comm.control(), core::to_wire(rig.sample.bytes()), {}, rig.timeout);
  std::uint64_t sum = 0;
  for (const std::string& bytes : all) sum += core::from_wire<std::uint64_t>(bytes);
  return sum;
}

// Allocates what the trials share, reads to find a sample that fits, and connects.
std::unique_ptr<ProbeRig> prepare_together(const std::shared_ptr<const source::Source>& source,
                                           const Catalog& catalog, const Communicator& comm,
                                           const Options& options, const Group& group,
                                           const Extent& extent) {
  std::unique_ptr<ProbeRig> rig;
  comm::agree_on(comm.control(), pipeline::timeout_of(options), [&]() -> std::string {
    rig = make_rig(source, catalog, comm, options, group, extent);
    fit_sample(*rig);
    return {};
  });
  connect(*rig);
  return rig;
}

Trials make_trials_together(ProbeRig& rig) {
  Trials trials;
  comm::agree_on(rig.comm.control(), rig.timeout, [&]() -> std::string {
    add_read_trials(rig, trials);
    add_move_trials(rig, trials);
    return {};
  });
  return trials;
}

// A probe in which nothing is measured yet.
Probe begin_probe(const ProbeRig& rig, const Group& group, bool quick) {
  Probe probe;
  probe.version = SAFESHUFFLE_VERSION;
  probe.quick = quick;
  probe.transport = rig.comm.transport_name();
  probe.chunk = rig.reader.chunk;
  probe.window = rig.window;
  probe.sample_bytes = sample_of_all(rig);
  describe_together(probe, rig);
  probe.place.ranks_per_node = group.ranks_per_node;
  probe.place.nodes = group.nodes;
  return probe;
}

Options load_options(const ProbeOptions& probe) {
  Options options;
  options.tp_plan = "replicate";  // nothing is placed
  options.timeout = probe.timeout;
  options.remote = probe.remote;
  return options;
}

}  // namespace
}  // namespace probing

Probe probe(const std::vector<std::string>& paths, const Communicator& comm,
            const ProbeOptions& probe_options) {
  using namespace probing;
  const comm::CollectiveCall call(comm);
  const Options options = load_options(probe_options);
  const Group group = group_of(exchange_intents(comm, probe_options, options), comm.rank());
  const Extent& extent = probing::extent(probe_options.quick);
  const auto source = source::make_source(options.remote, pipeline::timeout_of(options));
  const Catalog catalog =
      pipeline::open_together(*source, paths, options, comm.device(), comm.control())
          .checkpoint.catalog;
  const auto rig = prepare_together(source, catalog, comm, options, group, extent);
  Trials trials = make_trials_together(*rig);
  Probe probe = begin_probe(*rig, group, probe_options.quick);
  probe.measurements = take_turns(comm.control(), group.nodes, trials, extent.turns, probe_options);
  return probe;
}

}  // namespace safeshuffle
