#include "summary.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "size.hpp"
#include "table.hpp"

namespace safeshuffle::app {
namespace {

constexpr std::size_t most_fallback_lines = 16;

// Milliseconds, but not for loads that take minutes.
int decimals(const Report& report) {
  return report.seconds < 100 ? 3 : 1;
}

std::string bytes_table(const Report& report) {
  Table table({{"bytes", Align::left},
               {"read"},
               {"sent"},
               {"received"},
               {"kept"},
               {"peak device"},
               {"peak resident"}});
  for (const RankReport& rank : report.ranks) {
    std::vector<std::string> cells{fmt::format("rank {}", rank.rank)};
    for (const std::uint64_t bytes :
         {rank.read_bytes, rank.sent_bytes, rank.received_bytes, rank.kept_bytes,
          rank.peak_device_bytes, rank.peak_resident_bytes}) {
      cells.push_back(format_size(bytes));
    }
    table.add(cells);
  }
  return table.text();
}

// The phases in which any rank spent time.
std::vector<std::size_t> phases_seen(const Report& report) {
  std::vector<std::size_t> seen;
  for (std::size_t phase = 0; phase < phase_count; ++phase) {
    if (std::any_of(report.ranks.begin(), report.ranks.end(),
                    [phase](const RankReport& rank) { return rank.phases[phase] > 0; })) {
      seen.push_back(phase);
    }
  }
  return seen;
}

std::string phases_table(const Report& report) {
  const std::vector<std::size_t> phases = phases_seen(report);
  std::vector<Column> columns{{"seconds", Align::left}};
  for (const std::size_t phase : phases) {
    columns.push_back({std::string(name(static_cast<Phase>(phase)))});
  }
  columns.push_back({"total"});
  Table table(columns);
  const auto seconds = [digits = decimals(report)](double value) {
    return fmt::format("{:.{}f}", value, digits);
  };
  for (const RankReport& rank : report.ranks) {
    std::vector<std::string> cells{fmt::format("rank {}", rank.rank)};
    for (const std::size_t phase : phases) cells.push_back(seconds(rank.phases[phase]));
    cells.push_back(seconds(rank.total_seconds));
    table.add(cells);
  }
  return table.text();
}

// Of the rank that read longest.
std::string reading_line(const Report& report) {
  const auto longest = std::ranges::max_element(report.ranks, {}, &RankReport::read_busy_seconds);
  if (longest == report.ranks.end() || longest->read_hidden_seconds == 0) return {};
  return fmt::format("reads in progress for {0:.{2}f} s, {1:.{2}f} s of it beside other work\n",
                     longest->read_busy_seconds, longest->read_hidden_seconds, decimals(report));
}

std::string io_path(const Report& report) {
  std::set<std::string> paths;
  for (const RankReport& rank : report.ranks) {
    if (rank.read_bytes != 0) paths.insert(rank.io_path);
  }
  return paths.empty() ? "none" : fmt::format("{}", fmt::join(paths, ", "));
}

std::string fallback_lines(const Report& report) {
  std::set<std::string> fallbacks;
  for (const RankReport& rank : report.ranks) {
    fallbacks.insert(rank.fallbacks.begin(), rank.fallbacks.end());
  }
  std::string text;
  std::size_t left = fallbacks.size();
  for (const std::string& fallback : fallbacks) {
    if (fallbacks.size() - left == most_fallback_lines) break;
    text += fmt::format("fallback: {}\n", fallback);
    --left;
  }
  if (left != 0) text += fmt::format("fallback: {} more on other ranks, see --report\n", left);
  return text;
}

std::string path_line(const Report& report) {
  return fmt::format("device {}, transport {}, I/O {}; {} with a window of {}\n", report.device,
                     report.transport, io_path(report), count(report.waves, "wave"),
                     format_binary_size(report.window));
}

/// What automatic mode chose, over all ranks; empty if the caller chose.
std::string choices_line(const Report& report) {
  std::map<std::string, std::uint64_t> bytes;
  for (const RankReport& rank : report.ranks) {
    for (const ReadChoice& choice : rank.read_choices) {
      const char* const how = choice.direct ? "directly" : "through the page cache";
      const bool is_remote = choice.reason == over_http;
      bytes[is_remote ? std::string(over_http) : fmt::format("{} ({})", how, choice.reason)] +=
          choice.bytes;
    }
  }
  std::vector<std::string> parts;
  for (const auto& [how, read] : bytes)
    parts.push_back(fmt::format("{} {}", format_size(read), how));
  return parts.empty() ? "" : fmt::format("read {}\n", fmt::join(parts, ", "));
}

// Of all ranks; empty if nothing was at a URL.
std::string requests_line(const Report& report) {
  Requests all;
  for (const RankReport& rank : report.ranks) {
    all.made += rank.requests.made;
    all.repeated += rank.requests.repeated;
    all.raced += rank.requests.raced;
    all.kept_bytes += rank.requests.kept_bytes;
    if (all.not_kept.empty()) all.not_kept = rank.requests.not_kept;
  }
  if (all.made == 0) return {};
  std::string text = count(all.made, "request");
  if (all.repeated != 0) text += fmt::format(", {} of them repeated", all.repeated);
  if (all.raced != 0) text += fmt::format(", {} made twice because they were late", all.raced);
  if (all.kept_bytes != 0) text += fmt::format(", {} kept", format_size(all.kept_bytes));
  if (!all.not_kept.empty()) text += ", not all kept: " + all.not_kept;
  return text + "\n";
}

std::string result_line(const Report& report) {
  const double rate =
      report.seconds > 0 ? static_cast<double>(report.tensor_bytes) / report.seconds / 1e9 : 0;
  return fmt::format("loaded {} onto {} in {:.{}f} s: {:.2f} GB/s\n",
                     format_size(report.tensor_bytes), count(report.ranks.size(), "rank"),
                     report.seconds, decimals(report), rate);
}

// What the loading thread did in the phase that took longest.
const char* activity(Phase phase) {
  switch (phase) {
    case Phase::open:
      return "opening the files";
    case Phase::plan:
      return "planning";
    case Phase::allocate:
      return "allocating memory";
    case Phase::read:
      return "reading";
    case Phase::h2d:
      return "copying to the device";
    case Phase::pack:
      return "packing";
    case Phase::exchange:
      return "exchanging";
    case Phase::wait:
    case Phase::verify:
      break;
  }
  return "waiting for other ranks";
}

const Reached* reached_in(const Report& report, Phase phase) {
  if (!report.ceilings) return nullptr;
  const auto& steps = report.ceilings->steps;
  const auto found = std::ranges::find(steps, phase, &Reached::step);
  return found == steps.end() ? nullptr : &*found;
}

std::string placed(const char* how, const TargetCount& tensors) {
  return fmt::format("{} {} of {}", how, count(tensors.tensors, "tensor"),
                     format_size(tensors.bytes));
}

}  // namespace

std::string placement_line(const PlacementSummary& placement) {
  std::string text = placed("partitioned", placement.partitioned) + "; " +
                     placed("replicated", placement.replicated);
  if (placement.single.tensors != 0) text += "; " + placed("on a single rank", placement.single);
  if (placement.dropped.tensors != 0) text += "; " + placed("dropped", placement.dropped);
  return text + "\n";
}

std::string assignment_line(Assignment assignment, Order order, const std::string& reason) {
  return fmt::format("assigned {}{}{}\n", name(assignment),
                     order == Order::layer ? ", in layer order" : "",
                     reason.empty() ? "" : " (" + reason + ")");
}

std::string bottleneck_line(const Report& report) {
  const Bottleneck longest = bottleneck(report);
  if (const Reached* reached = reached_in(report, longest.phase)) {
    return fmt::format("bound by {}: {:.2f} of {:.2f} GB/s ({:.0f} % of {})\n",
                       activity(longest.phase), reached->bytes_per_second / 1e9,
                       reached->most / 1e9, reached->share() * 100, reached->ceiling);
  }
  return fmt::format("bound by {0}: {1:.{3}f} of {2:.{3}f} s\n", activity(longest.phase),
                     longest.seconds, longest.total_seconds, decimals(report));
}

std::string summary(const Report& report) {
  return bytes_table(report) + "\n" + phases_table(report) + "\n" +
         placement_line(report.placement) +
         assignment_line(report.assignment, report.order, report.assignment_reason) +
         path_line(report) + choices_line(report) + requests_line(report) + reading_line(report) +
         fallback_lines(report) + result_line(report) + bottleneck_line(report);
}

}  // namespace safeshuffle::app
