// Measuring reads with fio, where it is installed.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "safeshuffle/probe.hpp"

namespace safeshuffle::app {

/// How fio reads in one run.
struct FioRun {
  bool direct = false;
  std::string settings;                ///< for people
  std::vector<std::string> arguments;  ///< of fio, without files
};

/// A small set of sequential reads, direct and buffered; none takes longer than `seconds`.
std::vector<FioRun> fio_runs(double seconds);

/// Bytes per second in what fio printed with --output-format=json; empty if it is not that, or fio
/// read nothing.
std::optional<double> fio_rate(std::string_view json);

/// The faster of each kind, direct and buffered, of sequential reads of these files by fio, which
/// drops them from the page cache before each run. Only reads. What fio cannot do is left out: all
/// of it where fio is not installed. `meanwhile` is called after each run.
std::vector<FioResult> run_fio(const std::vector<std::string>& files, double seconds,
                               const std::function<void()>& meanwhile);

}  // namespace safeshuffle::app
