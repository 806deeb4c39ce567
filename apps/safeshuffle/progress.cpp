#include "progress.hpp"

#include <cmath>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "choice.hpp"
#include "launch.hpp"
#include "output.hpp"
#include "size.hpp"

namespace safeshuffle::app {
namespace {

constexpr int bar_width = 16;  // the line fits 80 columns
constexpr std::chrono::milliseconds redraw_interval{100};

// Under mpirun standard error is a pipe to the launcher, which passes it on to its own. Whether
// that is a terminal, the parent process tells; on another node it is no terminal of the user's.
bool launcher_has_terminal() {
  const std::string parent = fmt::format("/proc/{}/fd/2", getppid());
  const int descriptor = open(parent.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool terminal = isatty(descriptor) == 1;
  close(descriptor);
  return terminal;
}

bool user_sees_terminal() {
  return isatty(STDERR_FILENO) == 1 || (under_launcher() && launcher_has_terminal());
}

double share(std::uint64_t bytes, std::uint64_t total) {
  return total == 0 ? 1 : static_cast<double>(bytes) / static_cast<double>(total);
}

std::string format_duration(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.0f} h", seconds / 3600);
}

}  // namespace

void add_progress(CLI::App& parser, ProgressStyle& style) {
  add_choice<ProgressStyle>(parser, "--progress", "STYLE", style,
                            {{"auto", ProgressStyle::automatic},
                             {"none", ProgressStyle::none},
                             {"json", ProgressStyle::json}},
                            "How to show progress, and results");
}

ProgressPrinter::ProgressPrinter(ProgressStyle style, std::string activity)
    : activity_(std::move(activity)), start_(Clock::now()) {
  if (launched_rank() != 0) return;
  bar_ = style == ProgressStyle::automatic && user_sees_terminal();
  json_ = style == ProgressStyle::json;
}

void ProgressPrinter::update(std::uint64_t bytes, std::uint64_t total_bytes) {
  const Clock::time_point now = Clock::now();
  if (complete_ || (bytes != total_bytes && now - last_ < redraw_interval)) return;
  last_ = now;
  complete_ = bytes == total_bytes;
  if (bar_) print_bar(bytes, total_bytes);
  if (json_) print_json(bytes, total_bytes);
}

void ProgressPrinter::finish() {
  if (drawn_) print_message("\n");
  drawn_ = false;
}

void ProgressPrinter::print_bar(std::uint64_t bytes, std::uint64_t total_bytes) {
  const double done = share(bytes, total_bytes);
  const double elapsed = seconds();
  const double rate = elapsed > 0 ? static_cast<double>(bytes) / elapsed : 0;
  std::string time;
  if (bytes == total_bytes) {
    time = format_duration(elapsed);
  } else if (rate > 0) {
    time = format_duration(static_cast<double>(total_bytes - bytes) / rate) + " left";
  }
  const int filled = static_cast<int>(done * bar_width);
  print_message(fmt::format("\r{} [{:#<{}}{:.<{}}] {:3.0f}%  {} of {}  {:.2f} GB/s  {:<12}",
                            activity_, "", filled, "", bar_width - filled, std::floor(done * 100),
                            format_size(bytes), format_size(total_bytes), rate / 1e9, time));
  drawn_ = true;
}

void ProgressPrinter::print_json(std::uint64_t bytes, std::uint64_t total_bytes) const {
  const double elapsed = seconds();
  print_result(fmt::format(R"({{"event":"progress","activity":"{}","bytes":{},"total_bytes":{},)"
                           R"("seconds":{:.3f},"gigabytes_per_second":{:.3f}}})"
                           "\n",
                           activity_, bytes, total_bytes, elapsed,
                           elapsed > 0 ? static_cast<double>(bytes) / elapsed / 1e9 : 0));
}

double ProgressPrinter::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

}  // namespace safeshuffle::app
