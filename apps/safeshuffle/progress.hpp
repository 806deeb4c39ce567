// How far the work is, for people or programs.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

namespace safeshuffle::app {

enum class ProgressStyle : std::uint8_t {
  automatic,  ///< a bar if the user sees a terminal, else nothing
  none,
  json,  ///< standard output is one JSON object per line, the last of them an event "done"
};

/// --progress.
void add_progress(CLI::App& parser, ProgressStyle& style);

/// Prints progress of one piece of work, from rank 0 only. Not thread-safe.
class ProgressPrinter {
 public:
  /// `activity` such as "loading".
  ProgressPrinter(ProgressStyle style, std::string activity);
  ~ProgressPrinter() { finish(); }
  ProgressPrinter(const ProgressPrinter&) = delete;
  ProgressPrinter& operator=(const ProgressPrinter&) = delete;

  /// Throws IoError if progress is a result, as JSON is, and cannot be written.
  void update(std::uint64_t bytes, std::uint64_t total_bytes);

  /// Ends the line of a bar, so that other output can follow.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  void print_bar(std::uint64_t bytes, std::uint64_t total_bytes);
  void print_json(std::uint64_t bytes, std::uint64_t total_bytes) const;
  double seconds() const;

  bool bar_ = false;
  bool json_ = false;
  bool drawn_ = false;     // a bar, whose line is not ended
  bool complete_ = false;  // all bytes were shown
  std::string activity_;
  Clock::time_point start_;
  Clock::time_point last_;
};

}  // namespace safeshuffle::app
