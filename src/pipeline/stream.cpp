#include "pipeline/stream.hpp"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "safeshuffle/error.hpp"

#include "core/arithmetic.hpp"
#include "core/tensor_bytes.hpp"
#include "core/text.hpp"
#include "pipeline/sub_catalog.hpp"
#include "plan/schedule.hpp"
#include "plan/targets.hpp"

namespace safeshuffle::pipeline {
namespace {

/// Gathers targets, in their order, into groups that fit on every rank.
class Grouping {
 public:
  Grouping(const Catalog& catalog, const PlanOptions& options, std::uint32_t world,
           std::uint64_t most_bytes)
      : catalog_(catalog),
        options_(options),
        ranks_(replica_size(world, options)),
        most_bytes_(most_bytes),
        used_(ranks_) {}

  void add(Target target) {
    std::vector<std::uint64_t> bytes(ranks_);
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      bytes[rank] = bytes_on(target, rank);
      if (bytes[rank] > most_bytes_) fail(target, bytes[rank]);
    }
    if (!fits(bytes)) begin_group();
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) used_[rank] += bytes[rank];
    group_.push_back(std::move(target));
  }

  std::vector<std::vector<Target>> take() {
    if (!group_.empty()) begin_group();
    return std::move(groups_);
  }

 private:
  std::uint64_t bytes_on(const Target& target, std::uint32_t rank) const {
    if (!holds(target.placement, rank)) return 0;
    const Shape shape = shard_shape(shape_of(target, catalog_), target.placement, rank, ranks_);
    const DType dtype = plan::loaded_dtype(catalog_.tensors()[target.tensor], options_);
    return core::align_up(core::tensor_bytes(shape, dtype), plan::arena_alignment);
  }

  bool fits(const std::vector<std::uint64_t>& bytes) const {
    return std::ranges::equal(used_, bytes, [&](std::uint64_t used, std::uint64_t more) {
      return used + more <= most_bytes_;
    });
  }

  void begin_group() {
    groups_.push_back(std::exchange(group_, {}));
    used_.assign(ranks_, 0);
  }

  [[noreturn]] void fail(const Target& target, std::uint64_t bytes) const {
    throw MemoryError(ErrorRecord{.tensor = name_of(target, catalog_),
                                  .cause = "its " + std::to_string(bytes) +
                                           " bytes on one rank are more than those of a group, " +
                                           std::to_string(most_bytes_)});
  }

  const Catalog& catalog_;
  const PlanOptions& options_;
  const std::uint32_t ranks_;
  const std::uint64_t most_bytes_;
  std::vector<std::uint64_t> used_;  // by rank, of the last group
  std::vector<Target> group_;
  std::vector<std::vector<Target>> groups_;
};

// The same on ranks whose groups have the same names.
std::string digest(const std::vector<std::vector<Target>>& groups, const Catalog& catalog) {
  std::string names;
  for (const std::vector<Target>& group : groups) {
    for (const Target& target : group) names += name_of(target, catalog) + '\n';
    names += '\n';
  }
  return std::to_string(std::hash<std::string>{}(names));
}

}  // namespace

GroupStream::GroupStream(std::shared_ptr<OpenSession> session, const Selection& selection,
                         const StreamOptions& options)
    : session_(std::move(session)), options_(options) {
  session_->together("stream", [&] {
    if (options_.alive == 0) throw ConfigError("at least one group of a stream must be alive");
    Grouping grouping(session_->catalog(), session_->options().plan, session_->world(),
                      options_.group_bytes);
    for (Target& target : session_->in_model_order(selection)) grouping.add(std::move(target));
    groups_ = grouping.take();
    for (const auto& group : groups_) {
      progress_.total_bytes += only(session_->catalog(), tensors_of(group)).tensor_bytes();
    }
    return digest(groups_, session_->catalog());
  });
  start_next();
}

std::optional<TensorSet> GroupStream::next() {
  session_->together("next", [&] {
    check_usable();
    return std::string();
  });
  if (!ahead_) return {};
  has_failed_ = true;
  const TensorSet group = std::exchange(ahead_, {})->run();
  given_.push_back(group.owner());
  start_next();
  has_failed_ = false;
  return group;
}

// Reads into the slabs, and into the memory of its group, until they are full.
void GroupStream::start_next() {
  if (started_ == groups_.size()) return;
  const std::vector<Target>& group = groups_[started_++];
  const std::uint64_t others = std::min<std::uint64_t>(options_.alive, groups_.size() - 1);
  auto job = session_->plan_group("next", group, others * options_.group_bytes, progress_);
  progress_.bytes += job->plan().needed_bytes();
  job->start();
  ahead_ = std::move(job);
}

void GroupStream::check_usable() {
  if (has_failed_) throw ConfigError("the stream has failed before");
  if (!ahead_) return;  // at its end
  std::erase_if(given_, [](const auto& group) { return group.expired(); });
  if (given_.size() < options_.alive) return;
  throw MemoryError("the caller holds " + core::plural(given_.size(), "group") +
                    " of the stream, and may hold " + std::to_string(options_.alive) +
                    " at once: let go of one before asking for the next");
}

}  // namespace safeshuffle::pipeline
