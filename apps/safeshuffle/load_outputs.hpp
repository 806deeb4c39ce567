// The files that a load writes, made ready before it reads any tensor.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "safeshuffle/loader.hpp"
#include "safeshuffle/report.hpp"
#include "safeshuffle/sharded_output.hpp"

#include "core/atomic_file.hpp"

namespace safeshuffle::app {

/// Empty: not wanted.
struct OutputPaths {
  std::string shards;  ///< a directory
  std::string report;
  std::string trace;
};

/// Unless they are written, they leave everything as it was.
class LoadOutputs {
 public:
  /// Collective. Throws ConfigError if a path is that of another output or of a file that the load
  /// reads, by whatever name; as ShardedOutput; IoError if a file cannot be created. `comm` must
  /// outlive this.
  LoadOutputs(const OutputPaths& paths, const PlannedLoad& planned, const Communicator& comm,
              const Options& options);

  /// Collective; once. Throws IoError.
  void write(const TensorSet& model, const Report& report);

 private:
  const Communicator& comm_;
  Options options_;
  std::optional<ShardedOutput> shards_;
  std::unique_ptr<core::AtomicFile> report_;  // rank 0's, like the trace
  std::unique_ptr<core::AtomicFile> trace_;
};

}  // namespace safeshuffle::app
