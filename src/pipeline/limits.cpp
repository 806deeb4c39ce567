#include "pipeline/limits.hpp"

#include <algorithm>
#include <string>

#include "safeshuffle/error.hpp"

#include "core/defaults.hpp"

namespace safeshuffle::pipeline {
namespace {

constexpr std::chrono::milliseconds shortest_timeout{1000};

}  // namespace

void check_options(const Options& options) {
  if (options.threads > core::most_reader_threads) {
    throw ConfigError("at most " + std::to_string(core::most_reader_threads) +
                      " reader threads are possible");
  }
  if (options.chunk != 0 && options.chunk < core::smallest_chunk) {
    throw ConfigError("the chunk must be at least " + std::to_string(core::smallest_chunk) +
                      " bytes");
  }
  if (options.timeout < shortest_timeout) throw ConfigError("the time-out must be at least 1 s");
}

std::chrono::milliseconds timeout_of(const Options& options) {
  return std::max(options.timeout, shortest_timeout);
}

}  // namespace safeshuffle::pipeline
