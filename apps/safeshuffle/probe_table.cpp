#include "probe_table.hpp"

#include <string_view>

#include <fmt/format.h>

#include "size.hpp"
#include "table.hpp"

namespace safeshuffle::app {
namespace {

std::string title(std::string_view name) {
  if (name == "read_cold_direct") return "read cold files, direct";
  if (name == "read_cold_buffered") return "read cold files, buffered";
  if (name == "read_warm") return "read cached files";
  if (name == "read_warm_fresh") return "read cached files into new memory";
  if (name == "pack") return "pack rows";
  if (name == "pack_convert") return "pack rows, bf16 to f16";
  if (name == "host_to_device") return "copy to the device";
  if (name == "exchange") return "exchange, sent";
  return std::string(name);
}

std::string of(const Probe& probe, Measurement::Of of) {
  const bool several = probe.place.ranks_per_node * probe.place.nodes > 1;
  switch (of) {
    case Measurement::Of::one_rank:
      return several ? "one rank alone" : "";
    case Measurement::Of::node:
      return probe.place.nodes > 1 ? "each node" : "all ranks";
    case Measurement::Of::each_rank:
      break;
  }
  return several ? "each rank" : "";
}

std::string rate(double bytes_per_second) {
  return fmt::format("{:.2f}", bytes_per_second / 1e9);
}

std::string rates(const Probe& probe) {
  Table table(
      {{"GB/s", Align::left}, {"", Align::left}, {"median"}, {"least"}, {"most"}, {"runs"}});
  for (const Measurement& each : probe.measurements) {
    if (!each.result || each.is_time) continue;
    table.add({title(each.name), of(probe, each.of), rate(each.result->median),
               rate(each.result->least), rate(each.result->most),
               std::to_string(each.result->runs)});
  }
  return table.text();
}

std::string time_lines(const Probe& probe) {
  std::string text;
  for (const Measurement& each : probe.measurements) {
    if (!each.result || !each.is_time) continue;
    const Spread& seconds = *each.result;
    text += each.name == "request"
                ? fmt::format("a request for a page takes {:.1f} ms ({:.1f} to {:.1f})\n",
                              seconds.median * 1e3, seconds.least * 1e3, seconds.most * 1e3)
                : fmt::format(
                      "a wave takes {:.1f} microseconds besides moving its data ({:.1f} "
                      "to {:.1f})\n",
                      seconds.median * 1e6, seconds.least * 1e6, seconds.most * 1e6);
  }
  return text;
}

// Once, though it holds for one rank and for all.
std::string obstacle_lines(const Probe& probe) {
  std::string text;
  for (const Measurement& each : probe.measurements) {
    if (each.obstacle.empty() || each.of == Measurement::Of::node) continue;
    text += fmt::format("{}: not measured: {}\n", title(each.name), each.obstacle);
  }
  return text;
}

std::string place_lines(const Probe& probe) {
  const ProbePlace& place = probe.place;
  return fmt::format("{}: {}, {}, {} of memory, Linux {}\n", place.host,
                     place.cpu.empty() ? "unknown CPU" : place.cpu,
                     count(probe.machine.cores, "core"), format_size(probe.machine.memory_bytes),
                     probe.machine.kernel) +
         fmt::format("{} on {}, a sample of {}; {} in blocks of {}\n", place.filesystem,
                     place.filesystem_device, format_size(probe.sample_bytes),
                     count(probe.threads, "reader thread"), format_binary_size(probe.chunk)) +
         fmt::format("device {}, transport {}, {} on {}\n", place.device, probe.transport,
                     count(place.ranks_per_node * place.nodes, "rank"), count(place.nodes, "node"));
}

}  // namespace

std::string probe_text(const Probe& probe) {
  return place_lines(probe) + "\n" + rates(probe) + "\n" + time_lines(probe) +
         obstacle_lines(probe);
}

}  // namespace safeshuffle::app
