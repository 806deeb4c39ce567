// The plan of a load: which rank reads what, and where every byte goes in which wave. A pure
// function of (catalog, targets, world size, options), the same on every rank; making and
// inspecting one needs no GPU, no MPI and no file access. Its memory is proportional to tensors +
// ranks and does not depend on the window.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "safeshuffle/metadata.hpp"
#include "safeshuffle/options.hpp"
#include "safeshuffle/placement.hpp"
#include "safeshuffle/target.hpp"

namespace safeshuffle {

namespace plan {
struct Schedule;
}

/// One rank's part of a plan. All byte counts are tensor bytes without alignment padding, except
/// the sizes of device memory. Sent, received and kept bytes are counted after conversion.
struct RankSummary {
  std::uint32_t rank = 0;
  std::vector<std::uint32_t> files;     ///< indices of the files it reads from, ascending
  std::uint64_t read_bytes = 0;         ///< from storage; of tensors that are sliced, at most
  std::uint64_t sliced_bytes = 0;       ///< of them, those of tensors that are sliced
  std::uint64_t sent_bytes = 0;         ///< to other ranks, relayed ones too; a broadcast counts
                                        ///< once per receiver
  std::uint64_t received_bytes = 0;     ///< from other ranks
  std::uint64_t kept_bytes = 0;         ///< of all tensors it holds at the end; for lent memory,
                                        ///< of those it keeps to fill it, as stored
  std::uint64_t arena_bytes = 0;        ///< device memory of the finished tensors
  std::uint64_t slab_bytes = 0;         ///< device memory of one slab; there are three
  std::uint64_t pack_bytes = 0;         ///< device memory of the pack buffer
  std::uint64_t landing_bytes = 0;      ///< device memory of the landing buffer; often 0
  std::uint64_t peak_device_bytes = 0;  ///< arena + 3 slabs + pack buffer + landing buffer
};

/// Immutable and cheap to copy (shared ownership); safe to share between threads.
class Plan {
 public:
  std::uint32_t world() const noexcept;

  /// PlanOptions::replicas.
  std::uint32_t replicas() const noexcept;

  /// Ranks of one replica: rank r has shard r % replica_size() of every target.
  std::uint32_t replica_size() const noexcept;

  std::uint32_t waves() const noexcept;

  /// Window after applying the memory budget, in bytes.
  std::uint64_t window() const noexcept;

  /// Resolved assignment; never `automatic`.
  Assignment assignment() const noexcept;

  Order order() const noexcept;

  /// Why `automatic` selected it, with estimated times, where their costs come from, and what
  /// shares of the bytes are sliced, scattered and broadcast. If the caller selected it: these
  /// shares of `mixed`, otherwise empty.
  const std::string& assignment_reason() const noexcept;

  /// Equal on two ranks if and only if (up to hash collisions) their plans are equal: XXH3-64 over
  /// catalog, targets and schedule, except the files' paths and modification times, which may
  /// differ between nodes.
  std::uint64_t hash() const noexcept;

  const Catalog& catalog() const noexcept;

  /// Bytes of all stored tensors that any rank needs, each counted once, however many ranks read
  /// it.
  std::uint64_t needed_bytes() const noexcept;

  const std::vector<Target>& targets() const noexcept;

  /// In rank order.
  const std::vector<RankSummary>& ranks() const noexcept;

  /// What is allowed but probably not intended, such as a window so small that loading will be
  /// slow: one sentence each, the same on every rank; usually empty.
  std::vector<std::string> warnings() const;

  /// Proves from the plan alone that every byte of every target is written exactly once, with the
  /// stored byte or the zero that belongs there, and that every needed stored byte is read exactly
  /// once, or, if its tensor is sliced, once by each rank that keeps it. Throws PlanError naming
  /// the first tensor that fails: one whose targets divide it in ways that cannot be unpacked, or
  /// one composed of parts that end inside a byte; anything else is a defect of the planner.
  void prove() const;

  const plan::Schedule& schedule() const noexcept { return *schedule_; }

 private:
  friend Plan make_plan(Catalog, std::vector<Target>, std::uint32_t, const PlanOptions&);
  explicit Plan(std::shared_ptr<const plan::Schedule> schedule);
  std::shared_ptr<const plan::Schedule> schedule_;
};

/// Ranks of one replica, among which targets are split: `world` / PlanOptions::replicas. Throws
/// ConfigError if there is none, or a remainder.
std::uint32_t replica_size(std::uint32_t world, const PlanOptions& options);

/// Plans a load of `targets`, filled from `catalog`, onto `world` ranks. Placements are those in a
/// group of `replica_size` ranks. No two of the targets that a rank holds may have the same name.
/// Throws PlanError (a split inside a byte of a sub-byte type, a single rank outside the replica, a
/// composition that cannot be), MemoryError (budget), or ConfigError (option out of range).
Plan make_plan(Catalog catalog, std::vector<Target> targets, std::uint32_t world,
               const PlanOptions& options = {});

/// Every stored tensor is a target; `placements` in the order of `catalog.tensors()`.
Plan make_plan(Catalog catalog, std::vector<Placement> placements, std::uint32_t world,
               const PlanOptions& options = {});

}  // namespace safeshuffle
