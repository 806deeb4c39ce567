#include "summary.hpp"

#include <algorithm>
#include <set>
#include <string>

#include <fmt/format.h>

#include "size.hpp"
#include "table.hpp"

namespace safeshuffle::app {
namespace {

std::string seconds(double value) {
  return fmt::format("{:.3f}", value);
}

std::string bytes_table(const Report& report) {
  Table table({"rank", "read", "sent", "received", "kept", "peak device", "peak resident"});
  for (const RankReport& rank : report.ranks) {
    table.add({std::to_string(rank.rank), format_size(rank.read_bytes),
               format_size(rank.sent_bytes), format_size(rank.received_bytes),
               format_size(rank.kept_bytes), format_size(rank.peak_device_bytes),
               format_size(rank.peak_resident_bytes)});
  }
  return table.text();
}

std::string phases_table(const Report& report) {
  std::vector<std::string> header{"seconds"};
  for (std::size_t i = 0; i < phase_count; ++i) {
    header.emplace_back(name(static_cast<Phase>(i)));
  }
  header.insert(header.end(), {"total", "read hidden"});
  Table table(header);
  for (const RankReport& rank : report.ranks) {
    std::vector<std::string> cells{fmt::format("rank {}", rank.rank)};
    for (const double value : rank.phases) cells.push_back(seconds(value));
    cells.push_back(seconds(rank.total_seconds));
    cells.push_back(fmt::format("{} of {}", seconds(rank.read_hidden_seconds),
                                seconds(rank.read_busy_seconds)));
    table.add(cells);
  }
  return table.text();
}

std::string io_lines(const Report& report) {
  std::set<std::string> paths;
  std::set<std::string> fallbacks;
  for (const RankReport& rank : report.ranks) {
    if (rank.read_bytes != 0) paths.insert(rank.io_path);
    fallbacks.insert(rank.fallbacks.begin(), rank.fallbacks.end());
  }
  std::string text = fmt::format("read by: {}\n", fmt::join(paths, ", "));
  for (const std::string& fallback : fallbacks) text += fmt::format("fallback: {}\n", fallback);
  return text;
}

}  // namespace

std::string summary(const Report& report) {
  const double rate =
      report.seconds > 0 ? static_cast<double>(report.tensor_bytes) / report.seconds / 1e9 : 0;
  return bytes_table(report) + "\n" + phases_table(report) + "\n" + io_lines(report) +
         fmt::format(
             "loaded {} onto {} ranks in {:.3f} s: {:.2f} GB/s ({} device, {} transport, "
             "{} waves of up to {} per rank)\n",
             format_size(report.tensor_bytes), report.ranks.size(), report.seconds, rate,
             report.device, report.transport, report.waves, format_size(report.window));
}

}  // namespace safeshuffle::app
