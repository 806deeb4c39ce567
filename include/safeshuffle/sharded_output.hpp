// A directory in which to save each rank's tensors, prepared before the load:
//
//   safeshuffle::PlannedLoad planned = session.plan();
//   safeshuffle::ShardedOutput output("path/to/output", planned.plan(), comm, options);
//   const auto model = planned.run();
//   output.write(model);
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "safeshuffle/communicator.hpp"
#include "safeshuffle/options.hpp"
#include "safeshuffle/plan.hpp"
#include "safeshuffle/tensor.hpp"

namespace safeshuffle {

/// The files DIR/model-rank-{rank}-part-0.safetensors of the ranks of a group, of its first replica
/// if there are several, since the others have the same tensors. Ranks may share one directory,
/// or have several under the same path, such as one on every node.
///
/// From construction to destruction, the directory is locked for this group by a hidden file in it,
/// `.safeshuffle.lock`. The lock ends with the process that holds it, even if that is killed; the
/// file that then remains is harmless. Files left by an earlier save that was killed are removed:
/// hidden files `.NAME.safeshuffle-new-*` and `.NAME.safeshuffle-old-*`; the latter, an earlier
/// file, is renamed to NAME if that does not exist. Not thread-safe.
class ShardedOutput {
 public:
  /// Collective. Creates the directory and its parents, and checks that every rank can write the
  /// files that `plan` implies. Throws
  ///  - ConfigError if another group is saving into the directory; if it contains files of the
  ///    checkpoint; or if it contains other `.safetensors` files, including those of a larger
  ///    group, or an `.index.json`, which belong to another checkpoint;
  ///  - IoError if the directory cannot be created, locked (the filesystem must support locks) or
  ///    written to, or if it has too little free space for all ranks that share it. Earlier files
  ///    are replaced only when the new ones are complete, so their space does not count as free.
  ShardedOutput(std::filesystem::path directory, const Plan& plan, const Communicator& comm,
                const Options& options = {});

  /// Unless all files were written, removes what it has created.
  ~ShardedOutput();
  ShardedOutput(ShardedOutput&& other) noexcept;
  ShardedOutput& operator=(ShardedOutput&& other) noexcept;

  /// The file of `rank` in `directory`.
  static std::filesystem::path file_of(const std::filesystem::path& directory, std::uint32_t rank);

  /// Collective; callable once. Either all files appear under their names, complete, or none does
  /// and the earlier files are unchanged. A process that is killed leaves hidden files (see above);
  /// at the moment when the files get their names, some may be new and others the earlier ones,
  /// each complete. Throws IoError, or ConfigError if `model` was not loaded by this group with
  /// this plan.
  void write(const TensorSet& model);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace safeshuffle
