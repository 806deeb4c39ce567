#include "progress.hpp"

#include <algorithm>
#include <cmath>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "core/launcher.hpp"
#include "output.hpp"
#include "size.hpp"

namespace safeshuffle::app {
namespace {

constexpr int bar_width = 16;  // so that the whole line fits 80 columns
constexpr std::size_t usual_columns = 80;
constexpr std::chrono::milliseconds redraw_interval{100};

// Under mpirun, standard error is a pipe to the launcher, which forwards it to its own. The parent
// process shows whether that is a terminal; on another node it is not the user's terminal.
int open_terminal_of_launcher() {
  const std::string parent = fmt::format("/proc/{}/fd/2", getppid());
  const int descriptor = open(parent.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  if (descriptor < 0 || isatty(descriptor) == 1) return descriptor;
  close(descriptor);
  return -1;
}

// 0 if unknown, or if it is not a terminal.
std::size_t columns_of(int descriptor) {
  winsize size{};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
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

std::string time_text(const ProgressState& state, double rate) {
  if (state.bytes == state.total_bytes) return format_duration(state.seconds);
  if (rate <= 0) return {};
  return format_duration(static_cast<double>(state.total_bytes - state.bytes) / rate) + " left";
}

std::string bar(double done) {
  const int filled = static_cast<int>(done * bar_width);
  return fmt::format("[{:#<{}}{:.<{}}]", "", filled, "", bar_width - filled);
}

}  // namespace

std::string progress_line(const ProgressState& state, std::size_t columns) {
  const double done = share(state.bytes, state.total_bytes);
  const double rate = state.seconds > 0 ? static_cast<double>(state.bytes) / state.seconds : 0;
  std::string line =
      fmt::format("{} {} {:3.0f}%", state.activity, bar(done), std::floor(done * 100));
  if (state.counts_bytes) {
    line +=
        fmt::format("  {} of {}  {}/s", format_size(state.bytes), format_size(state.total_bytes),
                    format_size(static_cast<std::uint64_t>(rate)));
  }
  line += fmt::format("  {:<12}", time_text(state, rate));
  return line.substr(0, columns - 1);
}

std::unique_ptr<Terminal> Terminal::find() {
  const bool alone = core::how_launched() == core::Launch::alone;
  const int launcher = alone ? -1 : open_terminal_of_launcher();
  if (launcher < 0 && isatty(STDERR_FILENO) != 1) return nullptr;
  return std::make_unique<Terminal>(launcher);
}

Terminal::~Terminal() {
  if (launcher_ >= 0) close(launcher_);
}

// The launcher's terminal is the user's; a rank's terminal may be one that the launcher created.
std::size_t Terminal::columns() const {
  for (const int descriptor : {launcher_, STDERR_FILENO}) {
    if (const std::size_t columns = columns_of(descriptor)) return columns;
  }
  return usual_columns;
}

ProgressPrinter::ProgressPrinter(ProgressStyle style, std::string activity)
    : activity_(std::move(activity)), start_(Clock::now()) {
  if (core::launched_rank() != 0) return;
  if (style == ProgressStyle::automatic) terminal_ = Terminal::find();
  json_ = style == ProgressStyle::json;
}

void ProgressPrinter::update(std::uint64_t bytes, std::uint64_t total_bytes) {
  const Clock::time_point now = Clock::now();
  if (complete_ || (bytes != total_bytes && now - last_ < redraw_interval)) return;
  last_ = now;
  complete_ = bytes == total_bytes;
  if (terminal_) print_bar(bytes, total_bytes);
  if (json_) print_json(bytes, total_bytes);
}

void ProgressPrinter::update_share(double share) {
  constexpr std::uint64_t whole = 1'000'000;
  counts_bytes_ = false;
  update(static_cast<std::uint64_t>(share * whole), whole);
}

void ProgressPrinter::finish() {
  if (drawn_ != 0) print_message("\n");
  drawn_ = 0;
}

void ProgressPrinter::print_bar(std::uint64_t bytes, std::uint64_t total_bytes) {
  const std::size_t columns = terminal_->columns();
  const std::string line =
      progress_line({activity_, bytes, total_bytes, seconds(), counts_bytes_}, columns);
  const std::size_t covered = std::min(drawn_, columns - 1);  // characters of the previous line
  print_message(fmt::format("\r{:<{}}", line, covered));
  drawn_ = line.size();
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
