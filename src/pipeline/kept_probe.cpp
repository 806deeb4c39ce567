// Keeping probes, and finding the one of a load.
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iomanip>
#include <set>
#include <span>
#include <sstream>

#include "safeshuffle/error.hpp"
#include "safeshuffle/probe.hpp"

#include "comm/collective_call.hpp"
#include "comm/control/agreement.hpp"
#include "core/atomic_file.hpp"
#include "core/machine.hpp"
#include "core/new_directory.hpp"
#include "core/posix_file.hpp"
#include "core/process.hpp"
#include "core/wire.hpp"
#include "device/device.hpp"
#include "pipeline/probe_json.hpp"
#include "pipeline/probe_place.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace safeshuffle {
namespace pipeline {

std::uint32_t ranks_per_node(const std::vector<std::string>& hosts) {
  return static_cast<std::uint32_t>(std::ranges::count(hosts, hosts.front()));
}

std::uint32_t node_count(const std::vector<std::string>& hosts) {
  return static_cast<std::uint32_t>(std::set<std::string>(hosts.begin(), hosts.end()).size());
}

std::string device_model(const std::string& description) {
  if (description == "host" || description.starts_with("host (")) return "host";
  return description.substr(0, description.rfind(" at "));
}

namespace {

constexpr std::uint64_t most_bytes = std::uint64_t{1} << 20;  // of a kept file

std::string home_cache() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  // Of a relative path, the specification says to ignore it.
  if (cache != nullptr && cache[0] == '/') return cache;
  const char* const home = std::getenv("HOME");
  return home == nullptr || *home == '\0' ? std::string() : std::string(home) + "/.cache";
}

std::string plain_name(const std::string& host) {
  constexpr std::size_t longest = 64;
  std::string name = host.substr(0, longest);
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '_'; }, '_');
  return name;
}

// The name is for people; what distinguishes places is the number.
std::string file_name(const ProbePlace& place) {
  std::ostringstream key;
  for (const std::string& text :
       {place.host, place.filesystem, place.filesystem_device, place.device}) {
    key << text.size() << ' ' << text << '\n';
  }
  key << place.ranks_per_node << '\n' << place.nodes;
  const std::string bytes = key.str();
  std::ostringstream name;
  name << plain_name(place.host) << '-' << std::hex << std::setw(16) << std::setfill('0')
       << XXH3_64bits(bytes.data(), bytes.size()) << ".json";
  return name.str();
}

}  // namespace
}  // namespace pipeline

std::string probe_directory() {
  const std::string cache = pipeline::home_cache();
  return cache.empty() ? cache : cache + "/safeshuffle/probe";
}

std::string keep_probe(const Probe& probe, const std::string& directory) {
  core::NewDirectory created(directory);
  core::AtomicFile file(std::filesystem::path(directory) / pipeline::file_name(probe.place));
  const std::string text = to_json(probe) + "\n";
  file.write(0, std::as_bytes(std::span(text)));
  file.commit();
  created.keep();
  return file.path().string();
}

std::optional<KeptProbe> find_probe(const ProbePlace& place, const std::string& directory) try {
  const std::string path = (std::filesystem::path(directory) / pipeline::file_name(place)).string();
  const pipeline::ProbeText text =
      pipeline::parse_probe({path, core::read_text(path, pipeline::most_bytes)});
  if (text.place != place) return {};
  return KeptProbe{path, text.date, text.costs};
} catch (const IoError& error) {
  const int code = error.record().code;
  if (code == ENOENT || code == ENOTDIR) return {};
  throw;
}

ProbePlace place_of(const Communicator& comm, const std::string& path,
                    std::chrono::milliseconds timeout) {
  const comm::CollectiveCall call(comm);
  const core::Mount mount = core::mount_of(path);
  const std::string mine = core::WireWriter()
                               .put(core::host_name())
                               .put(mount.type)
                               .put(mount.device)
                               .put(pipeline::device_model(comm.device_handle()->description()))
                               .take();
  std::vector<std::string> hosts;
  const auto all = comm::agree(comm.control(), mine, {}, timeout);
  for (const std::string& bytes : all) hosts.push_back(core::WireReader(bytes).text());
  core::WireReader first(all.front());
  ProbePlace place;
  place.host = first.text();
  place.filesystem = first.text();
  place.filesystem_device = first.text();
  place.device = first.text();
  place.ranks_per_node = pipeline::ranks_per_node(hosts);
  place.nodes = pipeline::node_count(hosts);
  return place;
}

}  // namespace safeshuffle
