// The library call: load a safetensors checkpoint into the devices of a tensor-parallel group.
//
//   auto comm = safeshuffle::from_mpi(MPI_COMM_WORLD);
//   auto model = safeshuffle::load("path/to/checkpoint", comm, {});
//   for (const safeshuffle::TensorView& t : model) use(t.name, t.dtype, t.shape, t.data);
//
// The calls that take a Communicator are collective: all ranks call them in the same order with the
// same arguments, and all return or all throw the same error. Concurrent calls on one communicator,
// from two threads or from a progress callback, are an error: see Communicator.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "safeshuffle/communicator.hpp"
#include "safeshuffle/error.hpp"
#include "safeshuffle/metadata.hpp"
#include "safeshuffle/options.hpp"
#include "safeshuffle/plan.hpp"
#include "safeshuffle/sharded_state.hpp"
#include "safeshuffle/tensor.hpp"

namespace safeshuffle {

/// A checkpoint's metadata, read by one process without a communicator.
struct Checkpoint {
  Catalog catalog;
  std::string config_json;  ///< text of config.json; empty if there is none
  std::shared_ptr<const ShardedState> sharded_state;  ///< null if it is not one
  double cached_share =
      0;  ///< of the files, in the page cache of this node, estimated; 0 if unknown
  bool reads_directly = true;              ///< as Site's, of a load with default options
  std::vector<std::string> warnings = {};  ///< what was found, but is not a part of it
  std::vector<Alias> aliases = {};         ///< that metadata of the files names

  /// Where headers and index disagree: errors of `select_targets`, unless Selection::skip leaves
  /// the tensors out.
  std::vector<ErrorRecord> index_mismatches = {};
};

/// Reads the headers of a checkpoint: a directory, a `.safetensors` file, an `.index.json`, or
/// several files. For a model's directory in the Hugging Face cache, this is its main revision.
/// Paths may be URLs. Throws IoError, FormatError or MemoryError.
Checkpoint open_checkpoint(const std::vector<std::string>& paths, const RemoteOptions& remote = {});
Checkpoint open_checkpoint(const std::string& path, const RemoteOptions& remote = {});

/// The rules that `options.tp_plan` and `options.experts` select, with the numbers of the
/// checkpoint's config, for a group of `world` ranks: for each of its replicas. "auto" requires a
/// config.json with a known model_type if a replica has several ranks, if a pipeline stage is
/// selected, or if experts are dealt; otherwise, a single rank keeps every tensor of any model.
/// Throws ConfigError, or IoError if the rule file cannot be read. A sharded state that is loaded
/// as it was saved needs no rules either; one that cannot be loaded by this group is an error as of
/// `select_targets`.
TpPlan select_tp_plan(const Options& options, const Checkpoint& checkpoint, std::uint32_t world);

/// What a group of `world` ranks, each replica of it, loads: the selected tensors, composed and
/// placed by the rules of `select_tp_plan` (docs/placement.md). A sharded state is loaded as it was
/// saved, each rank its own files, by replicas of the size of the group that saved it and with
/// "auto" rules; otherwise its shards are joined and placed by the rules, if the files record what
/// they are. Throws as TpPlan::place_all and `select`; FormatError if index and headers disagree on
/// a tensor that `skip` does not leave out; ConfigError or PlanError if tensors cannot
/// be composed; IoError if files of a sharded state are missing; PlanError if nothing is recorded.
std::vector<Target> select_targets(const Checkpoint& checkpoint, const TpPlan& rules,
                                   const Options& options, std::uint32_t world);

/// Checkpoint::warnings, and those of the rules on a whole checkpoint (TpPlan::warnings).
std::vector<std::string> open_warnings(const Checkpoint& checkpoint, const TpPlan& rules,
                                       const Options& options, std::uint32_t world);

/// Loads a checkpoint: a Session (session.hpp) of one load. Collective. `paths` are used only on
/// rank 0, which finds the files; every rank must be able to open the files under the paths that
/// rank 0 finds.
TensorSet load(const std::vector<std::string>& paths, const Communicator& comm,
               const Options& options = {});
TensorSet load(const std::string& path, const Communicator& comm, const Options& options = {});

/// Loads according to an existing plan; `plan.world()` must equal `comm.size()`. Collective.
/// `options.plan`, `options.tp_plan`, `options.experts` and `options.selection` are not used.
TensorSet load(const Plan& plan, const Communicator& comm, const Options& options = {});

/// Re-reads the files through an independent, slow path and compares every byte that this rank
/// holds. Collective. Throws VerificationError naming rank, tensor and element. Returns the seconds
/// that each rank took; the result is the same on every rank.
std::vector<double> verify(const TensorSet& model, const Communicator& comm,
                           const Options& options = {});

/// Writes each rank's tensors, of the first replica, to DIR/model-rank-{rank}-part-0.safetensors,
/// replacing earlier files
/// of these names. Collective. The same as constructing a ShardedOutput and writing it at once; see
/// sharded_output.hpp for errors.
void save_sharded(const TensorSet& model, const std::filesystem::path& directory,
                  const Communicator& comm, const Options& options = {});

}  // namespace safeshuffle
