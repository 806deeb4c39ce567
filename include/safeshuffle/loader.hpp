// The library call: load a safetensors checkpoint into the devices of a tensor-parallel group.
//
//   auto comm = safeshuffle::from_mpi(MPI_COMM_WORLD);
//   auto model = safeshuffle::load("path/to/checkpoint", comm, {});
//   for (const safeshuffle::TensorView& t : model) use(t.name, t.dtype, t.shape, t.data);
//
// The calls that take a Communicator are collective: all ranks call them in the same order with the
// same arguments, and all return or all throw the same error. Two at once on one communicator, from
// two threads or from a progress callback, are an error: see Communicator.
#pragma once

#include <filesystem>
#include <memory>
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

/// A load by path in two steps, for callers that prepare something between them: the outputs of a
/// load, say, so that it is refused before it has read gigabytes, and not after. Movable; not
/// thread-safe.
class PlannedLoad {
 public:
  /// Opens the checkpoint, plans, and compares the plans of all ranks. Allocates nothing on the
  /// device and reads no tensor. Collective. Throws as `load` by path does.
  PlannedLoad(const std::vector<std::string>& paths, const Communicator& comm,
              const Options& options = {});
  PlannedLoad(PlannedLoad&& other) noexcept;
  PlannedLoad& operator=(PlannedLoad&& other) noexcept;
  ~PlannedLoad();

  const Plan& plan() const noexcept;

  /// Paths, as rank 0 has them, of all files that the load reads: those with tensors, and the
  /// index, config.json and rule file where there are such.
  const std::vector<std::string>& inputs() const noexcept;

  /// Loads. Collective; once. The time since the construction is in no phase of the report.
  TensorSet run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Loads by a plan made before; `plan.world()` must equal `comm.size()`. Collective. Of `options`,
/// `plan` and `tp_plan` are not used.
TensorSet load(const Plan& plan, const Communicator& comm, const Options& options = {});

/// Re-reads the files through an independent, slow path and compares every byte this rank holds.
/// Collective. Throws VerificationError naming rank, tensor and element. Returns the seconds that
/// each rank took, the same on every rank.
std::vector<double> verify(const TensorSet& model, const Communicator& comm,
                           const Options& options = {});

/// Writes each rank's tensors as DIR/model-rank-{rank}-part-0.safetensors, in place of earlier
/// files of these names: a ShardedOutput (sharded_output.hpp, which says what it refuses) that is
/// made and written at once. Collective.
void save_sharded(const TensorSet& model, const std::filesystem::path& directory,
                  const Communicator& comm, const Options& options = {});

}  // namespace safeshuffle
