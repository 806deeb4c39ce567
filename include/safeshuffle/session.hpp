// A session: a checkpoint opened once by a group of ranks, from which any number of loads follow.
//
//   safeshuffle::Session session("path/to/checkpoint", comm);
//   auto layer = session.load({.only = {"model.layers.0.*"}});
//
// All calls that say so are collective: see loader.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "safeshuffle/binding.hpp"
#include "safeshuffle/communicator.hpp"
#include "safeshuffle/dtype.hpp"
#include "safeshuffle/metadata.hpp"
#include "safeshuffle/options.hpp"
#include "safeshuffle/plan.hpp"
#include "safeshuffle/report.hpp"
#include "safeshuffle/selection.hpp"
#include "safeshuffle/tensor.hpp"

namespace safeshuffle {

/// A tensor of the caller, to be filled with what this rank has of the target of this name.
struct Parameter {
  std::string name;
  std::byte* data = nullptr;  ///< on the rank's device; any alignment
  DType dtype = DType::U8;    ///< as stored; or else both must be among F16, BF16, F32
  Shape shape;                ///< of the shard
  std::vector<std::uint64_t> strides = {};  ///< in elements; empty: dense
};

namespace pipeline {
class GroupStream;
class LoadJob;
class OpenSession;
}  // namespace pipeline

/// A load in two steps, for callers that prepare something in between, such as the outputs of the
/// load, so that it fails before it reads gigabytes, not after. Movable; not thread-safe. May
/// outlive its session.
class PlannedLoad {
 public:
  /// For internal use.
  explicit PlannedLoad(std::unique_ptr<pipeline::LoadJob> job);
  PlannedLoad(PlannedLoad&& other) noexcept;
  PlannedLoad& operator=(PlannedLoad&& other) noexcept;
  ~PlannedLoad();

  const Plan& plan() const noexcept;

  /// Those of the session, and Plan::warnings. The same on all ranks.
  const std::vector<std::string>& warnings() const noexcept;

  /// Loads. Collective; callable once, or again if it threw before it allocated anything. The time
  /// between planning and this call is in no phase of the report.
  TensorSet run();

 private:
  std::unique_ptr<pipeline::LoadJob> job_;
};

/// How a stream is divided.
struct StreamOptions {
  std::uint64_t group_bytes = std::uint64_t{256} << 20;  ///< most device memory of one group
  std::uint32_t alive = 2;  ///< groups that the caller may hold at once, at least 1
};

/// Tensors in model order, in groups of bounded size; see Session::stream. A group's tensors are,
/// as those of any set, in the order of their names; in model order by TensorView::index. Movable;
/// not thread-safe. Between calls, up to three windows of the next group are read ahead into the
/// slabs of the session, which can load nothing else until the stream has ended or is destroyed.
/// May outlive its session.
class Stream {
 public:
  /// For internal use.
  explicit Stream(std::unique_ptr<pipeline::GroupStream> stream);
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;
  ~Stream();

  /// The next group; none at the end. Its memory is given back with the last reference to it.
  /// Collective. Throws MemoryError, and can be called again, if a rank holds as many groups as may
  /// be alive; otherwise as Session::load.
  std::optional<TensorSet> next();

 private:
  std::unique_ptr<pipeline::GroupStream> stream_;
};

/// Movable; not thread-safe, but for `cancel`. Between loads it keeps its threads and its buffers:
/// three slabs, a pack and a landing buffer (RankSummary), on GPUs pinned memory too (docs/gpu.md).
/// A load that fails gives them back; the next one makes them again.
class Session {
 public:
  /// Opens the checkpoint: see `load` (loader.hpp) for the paths. Reads headers, not tensors, and
  /// allocates nothing on the device. `options` are those of all loads. Collective. Throws as
  /// `load`.
  Session(const std::vector<std::string>& paths, const Communicator& comm,
          const Options& options = {});
  Session(const std::string& path, const Communicator& comm, const Options& options = {});
  Session(Session&& other) noexcept;
  Session& operator=(Session&& other) noexcept;
  ~Session();

  /// Opens another checkpoint, such as new weights for the same model, in place of this one, or the
  /// same one after its files have changed, and keeps threads and buffers. Planned loads and
  /// streams stay with the one that they are of. Collective. Throws as `load`; then nothing has
  /// changed.
  void reopen(const std::vector<std::string>& paths);
  void reopen(const std::string& path);

  /// Of what is open: valid until it is reopened.
  const Catalog& catalog() const noexcept;

  /// See open_warnings (loader.hpp). The same on all ranks.
  const std::vector<std::string>& warnings() const noexcept;

  /// Paths, as on rank 0, of all files that loads read: those with tensors, and the index,
  /// config.json and rule file if there are any.
  const std::vector<std::string>& inputs() const noexcept;

  /// Plans a load of Options::selection, or of another one, and compares the plans of all ranks.
  /// Allocates nothing on the device. Collective. Throws ConfigError, FormatError, PlanError,
  /// MemoryError.
  PlannedLoad plan();
  PlannedLoad plan(const Selection& selection);

  /// The same, and loads. Collective.
  TensorSet load();
  TensorSet load(const Selection& selection);

  /// Loads the selection as `load` does, but one group of tensors after the other, in model order.
  /// Device memory stays below (alive + 1) groups and what the session keeps, which
  /// PlanOptions::memory_budget must hold. A stored tensor of which two groups need parts is read,
  /// and counts as progress, for both. Options::on_ready tells of layers, and Progress of waves, as
  /// if each group were the model. Collective. Throws MemoryError if a tensor does not fit in a
  /// group, or the groups not in the budget.
  Stream stream(const Selection& selection, const StreamOptions& options = {});

  // One tensor, by the names under which tensors are stored, whatever the rules say; converted as
  // Options say. Collective, and the arguments must be the same on all ranks, else all throw
  // ConfigError. A dimension is an index into the shape. Throw ConfigError if there is no such
  // tensor or dimension, and for a sharded state; PlanError if there is no such rank.

  /// Whole, on every rank.
  TensorSet get_tensor(const std::string& name);

  /// Split along a dimension: consecutive indices, ceil(extent / ranks) on each rank, fewer or none
  /// on the last ones. With replicas, among the ranks of each.
  TensorSet get_sharded(const std::string& name, std::uint32_t dim);

  /// Whole, on one rank, of each replica; on the others, the set is empty.
  TensorSet push(const std::string& name, std::uint32_t rank);

  /// Several, each split along a dimension as by get_sharded, and joined along it, in this order,
  /// as fused projections have it. Of one dtype, and of one shape but for `dim`. The result's name
  /// is theirs, joined by "+".
  TensorSet get_columns(const std::vector<std::string>& names, std::uint32_t dim);

  /// Indices of each dimension, on every rank; of dimensions without an interval, all. Replicas are
  /// not possible (ConfigError).
  TensorSet get_slice(const std::string& name, const std::vector<Interval>& ranges);

  /// Fills memory of the caller, as this rank's bindings say, which may differ from those of other
  /// ranks: any parts of any tensors, converted to each binding's dtype (Options do not matter).
  /// Each stored byte is read once, however many ranks need it, or by each of them if that is
  /// faster. Beyond the memory itself, this takes what the session keeps (above), and each call
  /// uses that again. Collective. Throws PlanError, before anything is written, naming the tensor
  /// and the destination of a binding that cannot be, or both destinations if two overlap;
  /// ConfigError if there are replicas, or for a sharded state. If it throws later, what the memory
  /// holds is unspecified.
  ///
  /// After a TimeoutError or TransportError, reads or messages that hang may write to the memory at
  /// any later time: it must stay as long as the process. `owner`, which owns it, is kept for that
  /// long if need be, and otherwise until the call returns.
  ///
  /// For host memory, huge pages are asked for (madvise), with which the first touch is quick.
  ///
  /// On a GPU, the memory is written after what the communicator's stream (nccl.hpp) has got before
  /// the call; what uses it on other streams must have ended.
  Report load_into(std::span<const Binding> bindings, std::shared_ptr<void> owner = nullptr);

  /// The same, by names of targets, placed by the rules, on ranks that hold them. Throws
  /// ConfigError if this rank holds none of that name, PlanError if its shape is another.
  Report load_into(std::span<const Parameter> parameters, std::shared_ptr<void> owner = nullptr);

  /// Sets Options::cancel, whether or not the caller has given one. May be called at any time, by
  /// any thread, callback or signal handler. `code`: not 0.
  void cancel(std::int32_t code = 1) noexcept;

 private:
  std::shared_ptr<CancelFlag> cancel_;
  std::shared_ptr<pipeline::OpenSession> session_;
};

}  // namespace safeshuffle
