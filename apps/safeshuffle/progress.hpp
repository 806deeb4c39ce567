// Progress output, for people or programs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace safeshuffle::app {

enum class ProgressStyle : std::uint8_t {
  automatic,  ///< a bar if the user sees a terminal, else nothing
  none,
  json,  ///< standard output is one JSON object per line, the last of them an event "done"
};

struct ProgressState {
  std::string activity;  ///< such as "loading"
  std::uint64_t bytes = 0;
  std::uint64_t total_bytes = 0;
  double seconds = 0;        ///< since the activity began
  bool counts_bytes = true;  ///< else `bytes` of `total_bytes` is only a share of the work
};

/// One line, cut off where it does not fit: it has fewer characters than the terminal has
/// `columns`, since some terminals wrap as soon as the last column is written.
std::string progress_line(const ProgressState& state, std::size_t columns);

/// The terminal on which the user sees standard error.
class Terminal {
 public:
  /// Null if there is none.
  static std::unique_ptr<Terminal> find();

  /// `launcher`: a descriptor of the launcher's terminal, which this closes; -1: there is none.
  explicit Terminal(int launcher) : launcher_(launcher) {}
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  /// The current number, because users resize terminals; at least 1.
  std::size_t columns() const;

 private:
  int launcher_;
};

/// Prints progress of one piece of work, from rank 0 only. Not thread-safe.
class ProgressPrinter {
 public:
  /// `activity` such as "loading".
  ProgressPrinter(ProgressStyle style, std::string activity);
  ~ProgressPrinter() { finish(); }
  ProgressPrinter(const ProgressPrinter&) = delete;
  ProgressPrinter& operator=(const ProgressPrinter&) = delete;

  /// Throws IoError if progress is part of the result, as JSON is, and cannot be written.
  void update(std::uint64_t bytes, std::uint64_t total_bytes);

  /// For work that does not consist of bytes: the share that is done, 0 to 1. Not for JSON.
  void update_share(double share);

  /// Ends the line of a bar, so that other output can follow.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  void print_bar(std::uint64_t bytes, std::uint64_t total_bytes);
  void print_json(std::uint64_t bytes, std::uint64_t total_bytes) const;
  double seconds() const;

  std::unique_ptr<Terminal> terminal_;  // null: no bar is shown
  bool json_ = false;
  std::size_t drawn_ = 0;  // characters of the bar on the current line
  bool complete_ = false;  // whether all bytes were shown
  bool counts_bytes_ = true;
  std::string activity_;
  Clock::time_point start_;
  Clock::time_point last_;
};

}  // namespace safeshuffle::app
