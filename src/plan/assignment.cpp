#include "plan/assignment.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <queue>
#include <span>
#include <vector>

#include "safeshuffle/error.hpp"

#include "plan/arena.hpp"
#include "plan/segments.hpp"
#include "plan/summary.hpp"
#include "plan/waves.hpp"

namespace safeshuffle {

std::string_view name(Order order) noexcept {
  return order == Order::file ? "file" : "layer";
}

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

void check_segments(const Schedule& schedule, std::uint32_t tensor) {
  const Segments segments(schedule.cuts[tensor], schedule.window);
  if (segments.count() <= std::numeric_limits<std::uint32_t>::max()) return;
  throw PlanError(ErrorRecord{.tensor = schedule.catalog.tensors()[tensor].name,
                              .cause = "the window is so small that segments cannot be counted"});
}

// The tensors that are read and are sliced, or are not, in reading order: that of the catalog or,
// in layer order, by depth in the model, so that within a layer reads remain long. Their segments
// can be counted.
std::vector<std::uint32_t> in_reading_order(const Schedule& schedule, bool sliced) {
  std::vector<std::uint32_t> tensors;
  for (std::uint32_t i = 0; i < schedule.cuts.size(); ++i) {
    if (!is_read(schedule, i) || schedule.sliced[i] != sliced) continue;
    check_segments(schedule, i);
    tensors.push_back(i);
  }
  if (schedule.order == Order::layer) {
    const auto depth = [&](std::uint32_t tensor) { return schedule.layers.depth[tensor]; };
    std::ranges::stable_sort(tensors, {}, depth);
  }
  return tensors;
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

Reads assign_files(const Schedule& schedule, const std::vector<std::uint32_t>& rank_of_file) {
  Reads reads(schedule.world);
  reserve(reads, schedule, rank_of_file);
  for (const std::uint32_t tensor : in_reading_order(schedule, false)) {
    const Segments segments(schedule.cuts[tensor], schedule.window);
    const std::uint32_t file = schedule.catalog.tensors()[tensor].file;
    reads[rank_of_file[file]].push_back(
        {tensor, 0, static_cast<std::uint32_t>(segments.count()), 0});
  }
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

// Divides every file or, in layer order, every layer, the first one with what precedes it, and what
// follows the layers, into stripes, 1/world of its bytes each: a segment belongs to the stripe that
// contains its midpoint.
class Striping {
 public:
  explicit Striping(const Schedule& schedule) : schedule_(schedule), reads_(schedule.world) {
    for (std::uint32_t rank = 0; rank < schedule.world; ++rank) readers_.push({0, rank});
  }

  Reads run() && {
    const std::vector<std::uint32_t> tensors = in_reading_order(schedule_, false);
    for (auto first = tensors.begin(); first != tensors.end();) {
      const auto end = std::find_if(first, tensors.end(), [&](std::uint32_t tensor) {
        return !are_striped_together(*first, tensor);
      });
      divide({first, end});
      deal();
      first = end;
    }
    return std::move(reads_);
  }

 private:
  struct Stripe {
    std::uint64_t index = 0;
    std::uint64_t bytes = 0;
    std::vector<Read> reads;
  };

  struct Reader {
    std::uint64_t bytes = 0;  // that it reads so far
    std::uint32_t rank = 0;
    auto operator<=>(const Reader&) const = default;
  };

  bool are_striped_together(std::uint32_t a, std::uint32_t b) const {
    if (schedule_.order == Order::layer) {
      return stage(a) == stage(b);
    }
    return schedule_.catalog.tensors()[a].file == schedule_.catalog.tensors()[b].file;
  }

  std::uint32_t stage(std::uint32_t tensor) const {
    return std::max(schedule_.layers.depth[tensor], first_layer_depth);
  }

  void divide(std::span<const std::uint32_t> tensors) {
    total_ = passed_ = 0;
    for (const std::uint32_t tensor : tensors) total_ += schedule_.catalog.tensors()[tensor].bytes;
    for (const std::uint32_t tensor : tensors) {
      const Segments segments(schedule_.cuts[tensor], schedule_.window);
      const auto count = static_cast<std::uint32_t>(segments.count());
      for (std::uint32_t first = 0; first < count;) {
        const std::uint64_t stripe = stripe_of(segments.bytes(first));
        const std::uint32_t end = end_of_stripe(segments, first, stripe);
        const std::uint64_t bytes = segments.bytes(end - 1).end - segments.bytes(first).begin;
        add({tensor, first, end - first, 0}, bytes, stripe);
        first = end;
      }
      passed_ += schedule_.catalog.tensors()[tensor].bytes;
    }
  }

  std::uint64_t stripe_of(const Range& segment) const {
    const std::uint64_t twice_middle = 2 * passed_ + segment.begin + segment.end;
    return twice_middle * schedule_.world / (2 * total_);
  }

  // The first segment after `first` that is not in the stripe, as `first` is: stripes ascend with
  // segments.
  std::uint32_t end_of_stripe(const Segments& segments, std::uint32_t first,
                              std::uint64_t stripe) const {
    std::uint32_t inside = first;
    auto outside = static_cast<std::uint32_t>(segments.count());
    while (outside - inside > 1) {
      const std::uint32_t middle = inside + (outside - inside) / 2;
      (stripe_of(segments.bytes(middle)) == stripe ? inside : outside) = middle;
    }
    return outside;
  }

  void add(const Read& read, std::uint64_t bytes, std::uint64_t stripe) {
    if (stripes_.empty() || stripes_.back().index != stripe) stripes_.push_back({stripe, 0, {}});
    stripes_.back().bytes += bytes;
    stripes_.back().reads.push_back(read);
  }

  // The larger a stripe, the fewer bytes its reader has so far: what does not divide evenly in one
  // file or layer evens out over several.
  void deal() {
    std::ranges::stable_sort(stripes_, std::greater(), &Stripe::bytes);
    std::vector<Reader> busy;
    for (const Stripe& stripe : stripes_) {
      Reader reader = readers_.top();
      readers_.pop();
      std::vector<Read>& reads = reads_[reader.rank];
      reads.insert(reads.end(), stripe.reads.begin(), stripe.reads.end());
      reader.bytes += stripe.bytes;
      busy.push_back(reader);
    }
    for (const Reader& reader : busy) readers_.push(reader);
    stripes_.clear();
  }

  const Schedule& schedule_;
  std::priority_queue<Reader, std::vector<Reader>, std::greater<>> readers_;  // fewest bytes first
  Reads reads_;

  // Of the file or layer that is being divided.
  std::uint64_t total_ = 0;   // bytes
  std::uint64_t passed_ = 0;  // bytes of the tensors so far
  std::vector<Stripe> stripes_;
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
  for (const std::uint32_t tensor : in_reading_order(schedule, true)) {
    std::uint64_t& of_geometry = waves[geometries.of_tensor[tensor]];
    if (of_geometry == 0) of_geometry = slice_waves(schedule, tensor);
    reads.push_back({tensor, 0, static_cast<std::uint32_t>(of_geometry), 0});
  }
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
  schedule.exchanged_waves = number_waves(schedule, 0, schedule.reads);
  schedule.slices = assign_slices(schedule, geometries);
  schedule.waves = number_waves(schedule, schedule.exchanged_waves, {&schedule.slices, 1});
  schedule.arena_order = arena_order(schedule);
  summarize(schedule, geometries);
}

}  // namespace safeshuffle::plan
