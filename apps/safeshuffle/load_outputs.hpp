// The files that a load writes, prepared before it reads any tensor.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "safeshuffle/loader.hpp"
#include "safeshuffle/report.hpp"
#include "safeshuffle/sharded_output.hpp"

#include "core/new_files.hpp"

namespace safeshuffle::app {

/// An empty path: not requested.
struct OutputPaths {
  std::string shards;  ///< a directory
  std::string report;
  std::string trace;
};

/// Leaves everything unchanged unless `write` succeeds.
class LoadOutputs {
 public:
  /// Collective. Throws ConfigError if a report would replace another output, one of the
  /// `inputs` of the load or a file of a checkpoint; IoError if a file cannot be created; and like
  /// ShardedOutput. `comm` must outlive this.
  LoadOutputs(const OutputPaths& paths, const std::vector<std::string>& inputs, const Plan& plan,
              const Communicator& comm, const Options& options);

  /// Collective; once. Throws IoError.
  void write(const TensorSet& model, const Report& report);

 private:
  const Communicator& comm_;
  Options options_;
  std::optional<ShardedOutput> shards_;
  std::unique_ptr<core::NewFile> report_;  // rank 0's, like the trace
  std::unique_ptr<core::NewFile> trace_;
};

}  // namespace safeshuffle::app
