// Keeping probes, and finding the one of a load.
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iomanip>
#include <span>
#include <sstream>

#include "safeshuffle/error.hpp"
#include "safeshuffle/probe.hpp"

#include "comm/collective_call.hpp"
#include "comm/control/agreement.hpp"
#include "core/machine.hpp"
#include "core/new_files.hpp"
#include "core/posix_file.hpp"
#include "core/process.hpp"
#include "core/wire.hpp"
#include "device/device.hpp"
#include "probe/json.hpp"
#include "probe/place.hpp"
#include "source/hub_path.hpp"
#include "source/select.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace safeshuffle {
namespace probing {

std::string device_model(const std::string& description) {
  if (description == "host" || description.starts_with("host (")) return "host";
  return description.substr(0, description.rfind(" at "));
}

namespace {

// Of a URL, its scheme, and the server or bucket; hf:// has one server.
core::Mount storage_of(const std::string& path) {
  if (!source::is_url(path)) return core::mount_of(path);
  constexpr std::string_view separator = "://";
  const std::size_t end = path.find(separator);
  const std::size_t begin = end + separator.size();
  if (source::is_hub_path(path)) return {path.substr(0, end), {}};
  return {path.substr(0, end), path.substr(begin, path.find('/', begin) - begin)};
}

}  // namespace

ProbePlace own_place(const std::string& path, const std::string& device) {
  const core::Mount mount = storage_of(path);
  return {.host = core::host_name(),
          .filesystem = mount.type,
          .filesystem_device = mount.device,
          .cpu = core::cpu_model(),
          .cpus = core::online_cpus(),
          .device = device_model(device)};
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
       {place.host, place.filesystem, place.filesystem_device, place.cpu, place.device}) {
    key << text.size() << ' ' << text << '\n';
  }
  key << place.cpus << '\n' << place.ranks_per_node << '\n' << place.nodes;
  const std::string bytes = key.str();
  std::ostringstream name;
  name << plain_name(place.host) << '-' << std::hex << std::setw(16) << std::setfill('0')
       << XXH3_64bits(bytes.data(), bytes.size()) << ".json";
  return name.str();
}

}  // namespace
}  // namespace probing

std::string probe_directory() {
  const std::string cache = probing::home_cache();
  return cache.empty() ? cache : cache + "/safeshuffle/probe";
}

std::string keep_probe(const Probe& probe, const std::string& directory) {
  const core::NewDirectory created(directory);
  core::NewFile file(std::filesystem::path(directory) / probing::file_name(probe.place));
  const std::string text = to_json(probe) + "\n";
  file.content().write(0, std::as_bytes(std::span(text)));
  file.commit();
  return file.path().string();
}

std::optional<KeptProbe> find_probe(const ProbePlace& place, const std::string& directory) try {
  const std::string path = (std::filesystem::path(directory) / probing::file_name(place)).string();
  const probing::ProbeText text =
      probing::parse_probe({path, core::read_text(path, probing::most_bytes)});
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
  const ProbePlace mine = probing::own_place(path, comm.device_handle()->description());
  std::vector<ProbePlace> places;
  std::vector<std::string> hosts;
  for (const std::string& bytes : comm::agree(comm.control(), core::to_wire(mine), {}, timeout)) {
    places.push_back(core::from_wire<ProbePlace>(bytes));
    hosts.push_back(places.back().host);
  }
  ProbePlace place = places.front();
  place.ranks_per_node = core::ranks_per_node(hosts);
  place.nodes = core::node_count(hosts);
  return place;
}

}  // namespace safeshuffle
