#include "plan/assignment.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "safeshuffle/error.hpp"

#include "plan/arena.hpp"
#include "plan/segments.hpp"
#include "plan/summary.hpp"
#include "plan/waves.hpp"

namespace safeshuffle {

std::string_view name(Assignment assignment) noexcept {
  switch (assignment) {
    case Assignment::round_robin:
      return "round-robin";
    case Assignment::balanced:
      return "balanced";
    case Assignment::striped:
      return "striped";
    case Assignment::sliced:
      return "sliced";
    case Assignment::mixed:
      return "mixed";
    case Assignment::automatic:
      break;
  }
  return "auto";
}

}  // namespace safeshuffle

namespace safeshuffle::plan {
namespace {

using Reads = std::vector<std::vector<Read>>;  // [reader]

constexpr std::uint32_t nobody = std::numeric_limits<std::uint32_t>::max();

bool is_dealt(const Schedule& schedule, std::uint32_t tensor) {
  return is_read(schedule, tensor) && !schedule.sliced[tensor];
}

// Of tensors that are dealt to ranks.
std::vector<std::uint64_t> bytes_per_file(const Schedule& schedule) {
  std::vector<std::uint64_t> bytes(schedule.catalog.files().size());
  const auto tensors = schedule.catalog.tensors();
  for (std::uint32_t i = 0; i < tensors.size(); ++i) {
    if (is_dealt(schedule, i)) bytes[tensors[i].file] += tensors[i].bytes;
  }
  return bytes;
}

// Calls visit(tensor, segments) for every tensor that is read and is sliced, or is not, in catalog
// order.
template <class Visit>
void for_each_read(const Schedule& schedule, bool sliced, Visit visit) {
  for (std::uint32_t i = 0; i < schedule.cuts.size(); ++i) {
    if (!is_read(schedule, i) || schedule.sliced[i] != sliced) continue;
    const Segments segments(schedule.cuts[i], schedule.window);
    if (segments.count() > std::numeric_limits<std::uint32_t>::max()) {
      throw PlanError(
          ErrorRecord{.tensor = schedule.catalog.tensors()[i].name,
                      .cause = "the window is so small that segments cannot be counted"});
    }
    visit(i, segments);
  }
}

// Growing lists would take up to twice the memory.
void reserve(Reads& reads, const Schedule& schedule,
             const std::vector<std::uint32_t>& rank_of_file) {
  std::vector<std::size_t> count(reads.size());
  const auto tensors = schedule.catalog.tensors();
  for (std::uint32_t i = 0; i < tensors.size(); ++i) {
    if (is_dealt(schedule, i)) ++count[rank_of_file[tensors[i].file]];
  }
  for (std::size_t reader = 0; reader < reads.size(); ++reader) {
    reads[reader].reserve(count[reader]);
  }
}

Read whole_read(std::uint32_t tensor, const Segments& segments) {
  return {tensor, 0, static_cast<std::uint32_t>(segments.count()), 0};
}

Reads assign_files(const Schedule& schedule, const std::vector<std::uint32_t>& rank_of_file) {
  Reads reads(schedule.world);
  reserve(reads, schedule, rank_of_file);
  for_each_read(schedule, false, [&](std::uint32_t tensor, const Segments& segments) {
    const std::uint32_t file = schedule.catalog.tensors()[tensor].file;
    reads[rank_of_file[file]].push_back(whole_read(tensor, segments));
  });
  return reads;
}

std::vector<std::uint32_t> round_robin_files(std::size_t files, std::uint32_t world) {
  std::vector<std::uint32_t> rank_of_file(files);
  for (std::size_t i = 0; i < files; ++i) rank_of_file[i] = static_cast<std::uint32_t>(i % world);
  return rank_of_file;
}

// The shards for which alone the files are needed, if it is so for each of them: a group loads the
// sharded state that one of its size has saved.
std::optional<std::vector<std::uint32_t>> shards_of_files(const Schedule& schedule) {
  std::vector<std::uint32_t> shards(schedule.catalog.files().size(), nobody);
  for (const Use& use : schedule.uses) {
    const Placement& placement = placement_of(schedule, use);
    if (placement.kind != Placement::Kind::single) return std::nullopt;
    std::uint32_t& shard = shards[schedule.catalog.tensors()[use.tensor].file];
    if (shard != nobody && shard != placement.rank) return std::nullopt;
    shard = placement.rank;
  }
  return shards;
}

// Each file is read by a rank that needs it, so that it is sent to the rank's twins at most. The
// replicas take turns.
std::vector<std::uint32_t> owners_of_files(const Schedule& schedule,
                                           std::vector<std::uint32_t> shards) {
  std::vector<std::uint32_t> turns(schedule.replica_size);
  std::iota(turns.begin(), turns.end(), 0U);
  for (std::uint32_t& shard : shards) {
    if (shard != nobody) shard = twin_of(schedule, shard, turns[shard]++ % schedule.replicas);
  }
  return shards;
}

// Longest processing time first: within 4/3 of the best balance that whole files allow (Graham
// 1969).
std::vector<std::uint32_t> balanced_files(const std::vector<std::uint64_t>& file_bytes,
                                          std::uint32_t world) {
  std::vector<std::uint32_t> order(file_bytes.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return file_bytes[a] > file_bytes[b]; });
  std::vector<std::uint64_t> load(world);
  std::vector<std::uint32_t> rank_of_file(file_bytes.size());
  for (const std::uint32_t file : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += file_bytes[file];
    rank_of_file[file] = static_cast<std::uint32_t>(least - load.begin());
  }
  return rank_of_file;
}

// Divides every file into stripes, 1/world of its bytes each: a segment is read by the rank of the
// stripe that contains its midpoint.
class Striping {
 public:
  explicit Striping(const Schedule& schedule)
      : schedule_(schedule),
        file_bytes_(bytes_per_file(schedule)),
        passed_(file_bytes_.size()),
        reads_(schedule.world) {}

  Reads run() && {
    for_each_read(schedule_, false, [&](std::uint32_t tensor, const Segments& segments) {
      const std::uint32_t file = schedule_.catalog.tensors()[tensor].file;
      const auto count = static_cast<std::uint32_t>(segments.count());
      for (std::uint32_t first = 0; first < count;) {
        const std::uint32_t stripe = stripe_of(file, segments.bytes(first));
        const std::uint32_t end = end_of_stripe(file, segments, first, stripe);
        // Rotated by file, so that if tensors do not divide evenly, the extra ones go to different
        // ranks.
        reads_[(stripe + file) % schedule_.world].push_back({tensor, first, end - first, 0});
        first = end;
      }
      passed_[file] += schedule_.catalog.tensors()[tensor].bytes;
    });
    return std::move(reads_);
  }

 private:
  std::uint32_t stripe_of(std::uint32_t file, const Range& segment) const {
    const std::uint64_t twice_middle = 2 * passed_[file] + segment.begin + segment.end;
    return static_cast<std::uint32_t>(twice_middle * schedule_.world / (2 * file_bytes_[file]));
  }

  // The first segment after `first` that is not in the stripe, as `first` is: stripes ascend with
  // segments.
  std::uint32_t end_of_stripe(std::uint32_t file, const Segments& segments, std::uint32_t first,
                              std::uint32_t stripe) const {
    std::uint32_t inside = first;
    auto outside = static_cast<std::uint32_t>(segments.count());
    while (outside - inside > 1) {
      const std::uint32_t middle = inside + (outside - inside) / 2;
      (stripe_of(file, segments.bytes(middle)) == stripe ? inside : outside) = middle;
    }
    return outside;
  }

  const Schedule& schedule_;
  std::vector<std::uint64_t> file_bytes_;
  std::vector<std::uint64_t> passed_;  // by file: bytes of the tensors visited so far
  Reads reads_;
};

// What each rank reads of tensors that are exchanged, in reading order: every segment of each
// belongs to one rank. Waves are left at 0.
Reads assign(const Schedule& schedule) {
  if (schedule.assignment == Assignment::striped || schedule.assignment == Assignment::mixed) {
    return Striping(schedule).run();
  }
  if (schedule.assignment == Assignment::balanced) {
    return assign_files(schedule, balanced_files(bytes_per_file(schedule), schedule.world));
  }
  auto shards = shards_of_files(schedule);
  return assign_files(schedule,
                      shards ? owners_of_files(schedule, *std::move(shards))
                             : round_robin_files(schedule.catalog.files().size(), schedule.world));
}

// What all ranks read: the tensors that are sliced. Likewise.
std::vector<Read> assign_slices(const Schedule& schedule, const Geometries& geometries) {
  std::vector<Read> reads;
  reads.reserve(static_cast<std::size_t>(std::ranges::count(schedule.sliced, true)));
  std::vector<std::uint64_t> waves(geometries.example.size());  // as far as needed
  for_each_read(schedule, true, [&](std::uint32_t tensor, const Segments&) {
    std::uint64_t& of_geometry = waves[geometries.of_tensor[tensor]];
    if (of_geometry == 0) of_geometry = slice_waves(schedule, tensor);
    reads.push_back({tensor, 0, static_cast<std::uint32_t>(of_geometry), 0});
  });
  return reads;
}

}  // namespace

void fill(Schedule& schedule, const Geometries& geometries, std::uint64_t window) {
  schedule.window = window;
  schedule.exchanged_waves = 0;
  schedule.reads = {};  // first, so that the memory is free
  schedule.slices = {};
  schedule.arena_order = {};
  schedule.reads = assign(schedule);
  for (auto& reads : schedule.reads) {
    schedule.exchanged_waves = std::max(schedule.exchanged_waves, number_waves(schedule, 0, reads));
  }
  schedule.slices = assign_slices(schedule, geometries);
  schedule.waves = number_waves(schedule, schedule.exchanged_waves, schedule.slices);
  schedule.arena_order = arena_order(schedule);
  summarize(schedule, geometries);
}

}  // namespace safeshuffle::plan
