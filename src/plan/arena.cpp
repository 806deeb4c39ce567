#include "plan/arena.hpp"

#include <algorithm>

#include "core/arithmetic.hpp"
#include "plan/run.hpp"
#include "plan/waves.hpp"

namespace safeshuffle::plan {
namespace {

class ArenaLayout {
 public:
  explicit ArenaLayout(Schedule& schedule) : schedule_(schedule), walker_(schedule) {
    schedule_.arena_offsets.assign(
        schedule_.world, std::vector<std::uint64_t>(schedule_.catalog.tensors().size(), not_held));
    schedule_.ranks.assign(schedule_.world, {});
    for (std::uint32_t rank = 0; rank < schedule_.world; ++rank) schedule_.ranks[rank].rank = rank;
  }

  void run() {
    for (std::uint32_t wave = 0; wave < schedule_.waves; ++wave) {
      for (std::uint32_t reader = 0; reader < schedule_.world; ++reader) place(wave, reader);
    }
    for (RankSummary& rank : schedule_.ranks) finish(rank);
  }

 private:
  void place(std::uint32_t wave, std::uint32_t reader) {
    const Slab& slab = schedule_.slab(wave, reader);
    count_read(slab, schedule_.ranks[reader]);
    std::uint64_t send_buffer = 0;
    for (std::uint32_t destination = 0; destination < schedule_.world; ++destination) {
      const std::uint64_t run_bytes = place_run(slab, reader, destination, false);
      if (destination != reader) send_buffer += core::align_up(run_bytes, arena_alignment);
      place_run(slab, reader, destination, true);
    }
    RankSummary& summary = schedule_.ranks[reader];
    summary.pack_bytes = std::max(summary.pack_bytes, send_buffer);
  }

  static void count_read(const Slab& slab, RankSummary& reader) {
    for (const FileRange& range : slab.file_ranges) {
      reader.read_bytes += range.bytes;
      if (reader.files.empty() || reader.files.back() != range.file) {
        reader.files.push_back(range.file);
      }
    }
    reader.slab_bytes = std::max(reader.slab_bytes, slab_bytes(slab));
  }

  std::uint64_t place_run(const Slab& slab, std::uint32_t reader, std::uint32_t destination,
                          bool replicated) {
    RankSummary& to = schedule_.ranks[destination];
    const std::uint64_t run_start = to.arena_bytes;
    return walker_.walk(slab, destination, replicated,
                        [&](const RunEntry& entry, const RankColumns& columns) {
                          reserve(entry, columns, run_start, destination);
                          to.kept_bytes += entry.bytes;
                          if (destination == reader) return;
                          to.received_bytes += entry.bytes;
                          schedule_.ranks[reader].sent_bytes += entry.bytes;
                        });
  }

  void reserve(const RunEntry& entry, const RankColumns& columns, std::uint64_t run_start,
               std::uint32_t destination) {
    const std::uint32_t tensor = entry.piece->tensor;
    std::uint64_t& offset = schedule_.arena_offsets[destination][tensor];
    if (offset != not_held) return;
    offset = run_start + entry.run_offset;
    const std::uint64_t shard_bytes =
        converted_bytes(entry.cut.rows * columns.row_bytes(),
                        schedule_.catalog.tensors()[tensor].dtype, schedule_.dtypes[tensor]);
    schedule_.ranks[destination].arena_bytes =
        core::align_up(offset + shard_bytes, arena_alignment);
  }

  static void finish(RankSummary& rank) {
    std::sort(rank.files.begin(), rank.files.end());
    rank.files.erase(std::unique(rank.files.begin(), rank.files.end()), rank.files.end());
    rank.peak_device_bytes = rank.arena_bytes + 2 * rank.slab_bytes + rank.pack_bytes;
  }

  Schedule& schedule_;
  RunWalker walker_;
};

}  // namespace

void layout_arenas(Schedule& schedule) {
  ArenaLayout(schedule).run();
}

}  // namespace safeshuffle::plan
