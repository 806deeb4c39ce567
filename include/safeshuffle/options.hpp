// Options of a load. The defaults suit most users; each field documents its unit, range and
// trade-off. Plain data: copy freely.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "safeshuffle/costs.hpp"
#include "safeshuffle/dtype.hpp"
#include "safeshuffle/selection.hpp"

namespace safeshuffle {

/// Which rank reads which files. A deterministic function of the catalog, the world size and, if
/// automatic, the site.
enum class Assignment : std::uint8_t {
  round_robin,  ///< file i is read by rank i % world; or, if every file is for one rank only, by it
  balanced,     ///< whole files, largest first, each to the rank with the fewest bytes so far
  striped,      ///< every file, or in layer order every layer, is divided into `world` ranges of
                ///< tensors; for few or skewed files
  sliced,       ///< every rank reads what it keeps itself; nothing is exchanged
  mixed,        ///< sliced where that is faster, by the costs of the site; other tensors, striped
  automatic,    ///< round-robin, unless another is at least 5 % faster by the costs of the site; in
                ///< layer order, striped or sliced
};

/// As in options of the command: "round-robin".
std::string_view name(Assignment assignment) noexcept;

/// In which order tensors are read, and so complete.
enum class Order : std::uint8_t {
  file,   ///< as they lie in the files
  layer,  ///< as data passes through the model: all ranks read parts of the embeddings, then of one
          ///< layer after the other, then of the rest. So layers are complete early, but reads are
          ///< shorter. What the layers are is taken from the names of tensors (docs/command.md)
};

/// "file", "layer".
std::string_view name(Order order) noexcept;

/// Where a load takes place: what Assignment::automatic and mixed, and the default window, depend
/// on. `load` by path replaces all but the costs by what it finds. Must be the same on all ranks.
struct Site {
  /// `automatic` counts as the host.
  DeviceKind device = DeviceKind::host;

  /// Number of nodes on which the ranks run, equally many consecutive ones on each.
  std::uint32_t nodes = 1;

  /// What part of the files is in a page cache that all ranks share, 0 to 1; 0 on several nodes.
  double cached_share = 0;

  /// Whether the rest is read with O_DIRECT, or else through the page cache, as on network
  /// filesystems.
  bool reads_directly = true;

  /// What is not known has the device's default (`default_costs`). `load` by path takes rank 0's.
  Costs costs;

  /// Where the costs come from, such as the path of a kept probe; for Plan::assignment_reason,
  /// which otherwise says "given" or "defaults". `load` by path takes rank 0's.
  std::string costs_origin;
};

/// What a plan depends on, besides catalog, placements and world size.
struct PlanOptions {
  Assignment assignment = Assignment::automatic;

  /// `layer` requires the assignment striped, sliced or automatic.
  Order order = Order::file;

  Site site;

  /// Copies of the model, each on as many ranks: of T ranks each, rank r has shard r mod T of
  /// replica r / T. Each stored byte is read once for all of them, unless it is sliced. Must divide
  /// the world size.
  std::uint32_t replicas = 1;

  /// Conversion of floating-point tensors, except scales of quantised layers and a few that engines
  /// use in F32 (docs/command.md).
  DTypePolicy dtype = DTypePolicy::keep;

  /// Names of tensors that are not converted either; patterns as those of Selection.
  std::vector<std::string> keep_dtype;

  /// Bytes of file data that one rank reads per wave, at least 4 KiB. Larger windows mean fewer,
  /// larger messages, but take up to four windows of device memory, and more where targets are
  /// unpacked from a landing buffer (target.hpp). A tensor larger than the
  /// window is moved in several waves. Below 1 MiB, or the size of the largest tensor if that is
  /// smaller, the overhead of the waves exceeds the time to move the data; Plan::warnings reports
  /// this. 0: by the device of the site, 64 MiB on the host, 256 MiB on GPUs.
  std::uint64_t window = 0;

  /// Maximum device bytes per rank: shards, slabs, pack and landing buffer and `reserved_bytes`,
  /// but not CUDA's own context. 0: no limit. The window is reduced to fit, but not below 1 MiB, or
  /// the size of the largest tensor if that is smaller; if even that does not fit, planning throws
  /// MemoryError.
  std::uint64_t memory_budget = 0;

  /// The part of the budget that is not available to the plan. `load` by path adds to it the pack
  /// tables and the transport's buffers, which take hundreds of megabytes with NCCL.
  std::uint64_t reserved_bytes = 0;
};

/// How experts are placed in a group of ranks.
enum class ExpertPlacement : std::uint8_t {
  cut,       ///< every expert is split among the ranks, as the rules say
  parallel,  ///< whole experts are dealt to the ranks, see TpPlan::deal_experts (placement.hpp)
};

/// What reads files.
enum class IoEngine : std::uint8_t {
  automatic,
  posix,  ///< threads that call pread
  uring,  ///< direct reads by one thread with io_uring, many in flight; all others as `posix`
  gds,    ///< direct reads straight into GPU memory (cuFile); all others as `posix`
};

/// Whether reads bypass the page cache (O_DIRECT).
enum class DirectIo : std::uint8_t { automatic, on, off };

/// How weights at URLs are fetched: http://, https://, s3:// and hf:// (docs/remote.md).
struct RemoteOptions {
  /// "Name: value", sent with every request, but not to other servers that one redirects to. Never
  /// printed.
  std::vector<std::string> headers;

  /// The most requests of a rank at a time: it begins with four, and makes more as long as that is
  /// faster. 0: 16, or eight for each core that the rank has to itself, if that is less.
  unsigned connections = 0;

  /// Other places of the same files: directories or URLs. What cannot be had is taken from the next
  /// one, also in the middle of a load, if it has the same name and size there, and the same bytes
  /// at five offsets; with any, these are what distinguishes versions of a file.
  std::vector<std::string> sources;

  /// A directory in which what is fetched is kept, in the layout of Hugging Face's cache; empty:
  /// nothing is. Files that are complete there are loaded from there; new ones are once the
  /// session or load that fetched them has ended. All ranks must see it.
  std::string cache;

  /// The files in it that were used longest ago are removed until no more than so many bytes are
  /// left; 0: none are.
  std::uint64_t cache_bytes = 0;
};

/// 0, or why a call is to be cancelled; see Options::cancel.
using CancelFlag = std::atomic<std::int32_t>;

/// Progress of a load.
struct Progress {
  std::uint64_t bytes = 0;        ///< the same share of them as of all reads is done
  std::uint64_t total_bytes = 0;  ///< of the tensors, however often ranks read them
  std::uint64_t wave = 0;         ///< number of finished waves
  std::uint64_t waves = 0;
};

struct TensorView;

/// What Options::on_ready tells.
struct Ready {
  enum class What : std::uint8_t {
    tensor,            ///< `tensor` is there
    layer,             ///< all is there that this rank has of `layer`
    layer_everywhere,  ///< and so it is on every other rank
  };
  What what = What::tensor;
  const TensorView* tensor = nullptr;  ///< valid as long as `owner`
  std::uint64_t layer = 0;             ///< its number in the names of its tensors

  /// Keeps all tensors of the load: for work on them that may go on after a load that then fails.
  /// Otherwise, the TensorSet that it returns keeps them. Does not keep memory of the caller.
  std::shared_ptr<const void> owner;
};

/// Everything a load depends on.
struct Options {
  PlanOptions plan;

  /// Placement rules: "auto" (from config.json's model_type), "replicate", the path of a rule file,
  /// which rank 0 reads, or its text, which begins with a brace.
  std::string tp_plan = "auto";

  /// Whether experts are split or dealt whole.
  ExpertPlacement experts = ExpertPlacement::cut;

  /// The tensors to load; the others are not read. The same on all ranks.
  Selection selection;

  /// `automatic` is `posix`. Where io_uring is not available, `uring` falls back to `posix`, and so
  /// does `gds` where cuFile is not, on the host, and for files that cuFile rejects; the report
  /// states it (with `strict`, an error).
  IoEngine io = IoEngine::automatic;

  /// `automatic` reads from the page cache what it has, and the rest with O_DIRECT, which is faster
  /// and leaves nothing there; on network filesystems, where O_DIRECT is rejected, and where the
  /// system does not say what is cached, it reads everything through the page cache. The report
  /// states what was chosen. With `on`, reads that the filesystem rejects fall back to buffered
  /// ones, which the report states (with `strict`, an error). `off` suits files that are loaded
  /// again and again and fit in memory: only the first load reads from storage.
  DirectIo direct = DirectIo::automatic;

  /// Drops from the page cache, wave by wave, what the load reads, and at the end all of its files,
  /// whatever was cached of them before. What a load that fails has just read stays. The same on
  /// all ranks of a node.
  bool drop_cache_behind = false;

  /// Reader threads per rank. 0: on the host, 8; on GPUs, the cores divided by the ranks that share
  /// them, minus one, but at least 4 and at most 16. On the host, they run on the CPUs that the
  /// launcher bound the rank to. On GPUs, on those of the GPU's NUMA node that the cgroup permits,
  /// if there is one for each thread; else on those that the launcher bound the rank to, under the
  /// same condition; else on all that the cgroup permits. So they do not all share one core if the
  /// launcher binds each rank to one.
  unsigned threads = 0;

  /// Bytes per read call, at least 4 KiB. Data reaches a GPU through two chunks of pinned memory
  /// for each reader thread, but at most 64 MiB unless two chunks are more. 0: 8 MiB; 2 MiB on
  /// GPUs.
  std::uint64_t chunk = 0;

  /// Longest time without progress before a peer is considered lost, at least 1 s. Must be longer
  /// than any rank takes to allocate its memory, to read and pack one window, and to make one
  /// storage call, such as reading the header of a file or flushing part of a file, and than all
  /// ranks take to connect and to exchange one window. Otherwise, opening, planning, verifying and
  /// saving may take any time, because a rank sends heartbeats meanwhile. To this end computations
  /// run on a thread of their own; this rank throws that a peer was lost only after its computation
  /// has ended.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);

  /// Of paths that are URLs.
  RemoteOptions remote;

  /// A fallback is an error (FallbackError) instead of a line in the report.
  bool strict = false;

  /// Record what works when in the report (RankReport::spans), a few hundred bytes per wave.
  bool trace = false;

  /// Set to anything but 0, on any rank, from any thread, callback or signal handler, it ends the
  /// collective call that is in progress, or else the next one: all ranks throw CancelledError,
  /// with that value as ErrorRecord::code, and it is 0 again. The communicator, and a session, can
  /// be used again. A load ends with the wave that is being read or, where ranks read slices, after
  /// about a second, at most 16 waves; while verifying or saving, other ranks may finish what they
  /// do. Null: Session::cancel only.
  std::shared_ptr<CancelFlag> cancel = nullptr;

  /// Called on the loading thread for each tensor, and then for each layer that is complete, as
  /// soon as its data is in device memory; with Order::layer, layer by layer. What is a layer:
  /// docs/command.md. Slices, and loads into memory of the caller, tell of layers only. Calls and
  /// exceptions: as for `on_progress`.
  std::function<void(const Ready&)> on_ready;

  /// Called on the loading thread after every wave and at most every 100 ms in between; by `verify`
  /// after every tensor, with the bytes that this rank holds. Must not use the communicator:
  /// collective calls on it throw ConfigError. If the callback throws, it is not called again, all
  /// ranks of a load stop when they next wait for each other, and all ranks throw: an Error
  /// unchanged, anything else as InternalError.
  std::function<void(const Progress&)> on_progress;
};

}  // namespace safeshuffle
