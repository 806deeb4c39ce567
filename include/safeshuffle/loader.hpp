// The library call: load a safetensors checkpoint into the devices of a tensor-parallel group.
//
//   auto comm = safeshuffle::from_mpi(MPI_COMM_WORLD);
//   auto model = safeshuffle::load("path/to/checkpoint", comm, {});
//   for (const safeshuffle::TensorView& t : model) use(t.name, t.dtype, t.shape, t.data);
//
// The calls that take a Communicator are collective: all ranks call them in the same order with the
// same arguments, and all return or all throw the same error. None is safe to run concurrently with
// another collective call on the same communicator.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "safeshuffle/communicator.hpp"
#include "safeshuffle/error.hpp"
#include "safeshuffle/metadata.hpp"
#include "safeshuffle/options.hpp"
#include "safeshuffle/plan.hpp"
#include "safeshuffle/tensor.hpp"

namespace safeshuffle {

/// A checkpoint's metadata, read by one process without a communicator.
struct Checkpoint {
  Catalog catalog;
  std::string config_json;  ///< text of config.json; empty if there is none
};

/// Reads the headers of a checkpoint: a directory, a `.safetensors` file, an `.index.json`, or
/// several files. A model's directory in Hugging Face's cache stands for its main revision. Throws
/// IoError or FormatError.
Checkpoint open_checkpoint(const std::vector<std::string>& paths);
Checkpoint open_checkpoint(const std::string& path);

/// The rules that `Options::tp_plan` names, applied with the checkpoint's config, for a group of
/// `world` ranks. "auto" asks for a config.json with a known model_type only if `world` > 1: a
/// single rank keeps everything whatever the model is. Throws ConfigError, or IoError if the rule
/// file cannot be read.
TpPlan select_tp_plan(std::string_view tp_plan, const Checkpoint& checkpoint, std::uint32_t world);

/// Loads a checkpoint. Collective. `paths` matter on rank 0 only, which finds the files; every rank
/// must be able to open the files under the names that rank 0 finds.
TensorSet load(const std::vector<std::string>& paths, const Communicator& comm,
               const Options& options = {});
TensorSet load(const std::string& path, const Communicator& comm, const Options& options = {});

/// Loads by a plan made before; `plan.world()` must equal `comm.size()`. Collective. Of `options`,
/// `plan` and `tp_plan` are not used.
TensorSet load(const Plan& plan, const Communicator& comm, const Options& options = {});

/// Re-reads the files through an independent, slow path and compares every byte this rank holds.
/// Collective. Throws VerificationError naming rank, tensor and element. Returns the seconds that
/// each rank took, the same on every rank.
std::vector<double> verify(const TensorSet& model, const Communicator& comm,
                           const Options& options = {});

/// Writes each rank's tensors as DIR/model-rank-{rank}-part-0.safetensors, in place of earlier
/// files of these names. Collective: either all files appear under their names, complete, or none
/// does, and the earlier ones are as they were. Only if a process is killed in the moment in which
/// all files get their names, some may be new and others the earlier ones, each complete; and a
/// killed process may leave hidden files, DIR/.NAME.tmp-* (new) and .NAME.old-* (earlier; where the
/// filesystem has no hard links, this may be its only name). Throws IoError; ConfigError if the
/// checkpoint itself lies in the directory, or files of a larger group do, which would be taken for
/// part of this one.
void save_sharded(const TensorSet& model, const std::filesystem::path& directory,
                  const Communicator& comm, const Options& options = {});

}  // namespace safeshuffle
