// A directory to save each rank's tensors in, made ready before there are any:
//
//   safeshuffle::PlannedLoad planned({"path/to/checkpoint"}, comm, options);
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

/// The files DIR/model-rank-{rank}-part-0.safetensors of one group. Ranks may share one directory,
/// or have several under the same path, such as one on every node.
///
/// From construction to destruction the directory is locked for this group, by a hidden file
/// `.safeshuffle.lock` in it; the lock ends with the process that holds it, even if that is killed,
/// and the file that is left then does no harm. What an earlier save left behind because it was
/// killed is removed: hidden files `.NAME.tmp-*` (new) and `.NAME.old-*` (earlier), which becomes
/// NAME again if nothing else is. Not thread-safe.
class ShardedOutput {
 public:
  /// Collective. Creates the directory, with its parents, and makes sure that every rank can write
  /// there what `plan` foretells for it. Throws
  ///  - ConfigError if another group is saving into the directory; if files of the checkpoint lie
  ///  in
  ///    it; or if it holds other `.safetensors` files or an `.index.json` of such, also of a larger
  ///    group: whoever loads the directory would take all of them for one checkpoint;
  ///  - IoError if the directory cannot be created, locked (the filesystem must have locks) or
  ///    written to, or if its free space is too little for all ranks that share it. Earlier files
  ///    are replaced only after the new ones are whole, so their space does not count as free.
  ShardedOutput(std::filesystem::path directory, const Plan& plan, const Communicator& comm,
                const Options& options = {});

  /// Unless all was written, removes what it has created.
  ~ShardedOutput();
  ShardedOutput(ShardedOutput&& other) noexcept;
  ShardedOutput& operator=(ShardedOutput&& other) noexcept;

  /// The file of `rank` in `directory`.
  static std::filesystem::path file_of(const std::filesystem::path& directory, std::uint32_t rank);

  /// Collective; once. Either all files appear under their names, complete, or none does, and the
  /// earlier ones are as they were. Only if a process is killed in the moment in which all files
  /// get their names, some may be new and others the earlier ones, each complete, and hidden files
  /// may be left (see above); where the filesystem has no files without a name (O_TMPFILE), such as
  /// NFS, a process killed at any time leaves hidden files. Throws IoError; ConfigError if `model`
  /// is not one that this group has loaded.
  void write(const TensorSet& model);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace safeshuffle
