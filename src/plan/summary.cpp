#include "plan/summary.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/arithmetic.hpp"
#include "core/page.hpp"
#include "plan/geometry.hpp"
#include "plan/pack_load.hpp"
#include "plan/shard.hpp"
#include "plan/waves.hpp"

namespace safeshuffle::plan {
namespace {

std::uint64_t aligned(std::uint64_t bytes) {
  return core::align_up(bytes, arena_alignment);
}

RankRun only(std::uint32_t rank) {
  return {rank, rank + 1, 0, 0};
}

// Adds to ranges of ranks of a replica and sums up at the end. Intermediate values may wrap around.
class RankSums {
 public:
  explicit RankSums(std::uint32_t ranks) : steps_(std::size_t{ranks} + 1) {}

  void add(const RankRun& run, std::uint64_t amount) {
    steps_[run.first] += amount;
    steps_[run.end] -= amount;
  }

  std::vector<std::uint64_t> take() && {
    for (std::size_t i = 1; i < steps_.size(); ++i) steps_[i] += steps_[i - 1];
    return std::move(steps_);
  }

 private:
  std::vector<std::uint64_t> steps_;
};

// How many stored bytes of a tensor its reader and all ranks that it sends to keep together: counts
// each stored byte once per rank of one replica that keeps it, or, if
// it is broadcast, once per rank.
class ColumnTotals {
 public:
  ColumnTotals(const Schedule& schedule, std::uint32_t tensor);

  // The total kept of the stored bytes before `offset`.
  std::uint64_t before(std::uint64_t offset) const;

 private:
  // From `column` on, `ranks` ranks keep every column; the columns before count for `total` bytes.
  struct Step {
    std::uint64_t column = 0;
    std::uint64_t ranks = 0;
    std::uint64_t total = 0;
  };

  std::uint64_t in_row(std::uint64_t column) const;

  std::uint64_t row_bytes_;
  std::vector<Step> steps_;  // ascending columns, the first at 0
};

ColumnTotals::ColumnTotals(const Schedule& schedule, std::uint32_t tensor)
    : row_bytes_(schedule.cuts[tensor].row_bytes) {
  std::map<std::uint64_t, std::int64_t> changes{{0, 0}};  // of the number of ranks, by column
  const auto count = [&](const RankColumns& kept, std::int64_t ranks) {
    for (const Columns& interval : kept.columns()) {
      changes[interval.begin] += ranks;
      changes[interval.end] -= ranks;
    }
  };
  RankColumns columns;
  if (is_replicated(schedule, tensor)) {
    columns.assign(schedule, tensor, 0);
    count(columns, schedule.world);
  }
  for_each_receiver(schedule, tensor, columns,
                    [&](std::uint32_t, const RankColumns& kept) { count(kept, 1); });
  Step step;
  for (const auto& [column, change] : changes) {
    step.total += (column - step.column) * step.ranks;
    step.column = column;
    step.ranks += static_cast<std::uint64_t>(change);
    steps_.push_back(step);
  }
}

std::uint64_t ColumnTotals::before(std::uint64_t offset) const {
  return offset / row_bytes_ * in_row(row_bytes_) + in_row(offset % row_bytes_);
}

std::uint64_t ColumnTotals::in_row(std::uint64_t column) const {
  const auto after =
      std::upper_bound(steps_.begin(), steps_.end(), column,
                       [](std::uint64_t at, const Step& step) { return at < step.column; });
  const Step& step = *(after - 1);
  return step.total + (column - step.column) * step.ranks;
}

class Summarizer {
 public:
  Summarizer(Schedule& schedule, const Geometries& geometries)
      : schedule_(schedule),
        geometries_(geometries),
        totals_(geometries.example.size()),
        passed_on_(schedule.replicas == 1 ? 0 : schedule.replicas,
                   RankSums(schedule.replica_size)) {
    schedule_.ranks.assign(schedule_.world, {});
    for (std::uint32_t rank = 0; rank < schedule_.world; ++rank) schedule_.ranks[rank].rank = rank;
  }

  void run() {
    sum_shards();
    sum_shares();
    const std::vector<ReadGroup> groups = read_groups(schedule_);
    const auto first_slices = std::ranges::find_if(
        groups, [&](const ReadGroup& group) { return !is_exchanged(schedule_, group.wave); });
    const std::span<const ReadGroup> exchanged(groups.begin(), first_slices);
    const std::span<const ReadGroup> sliced(first_slices, groups.end());
    for (const ReadGroup& group : exchanged) add_group(group);
    for (RankSummary& rank : schedule_.ranks) sort_files(rank.files);
    add_segments();
    add_passed_on();
    add_slices(sliced);
    add_landing(exchanged, sliced);
    for (RankSummary& rank : schedule_.ranks) {
      rank.peak_device_bytes = rank.arena_bytes + schedule_.slabs * rank.slab_bytes +
                               rank.pack_bytes + rank.landing_bytes;
    }
  }

 private:
  // Of one tensor, over all ranks that its reader sends to: those of its replica, or, of a
  // broadcast, all.
  struct Totals {
    std::uint64_t kept = 0;
    std::uint64_t packed = 0;  // aligned runs; broadcast data is not packed
  };

  struct SegmentRead {
    std::uint32_t geometry = 0;
    std::uint32_t reader = 0;
    const Read* read = nullptr;
  };

  // What ranks end up with, but for shards that are shares.
  void sum_shards() {
    for (const TargetGroup& group : target_groups(schedule_)) {
      for (RankSummary& rank : schedule_.ranks) {
        const std::uint64_t bytes = shard_bytes(schedule_, group.example, rank.rank, columns_);
        rank.kept_bytes += group.targets * bytes;
        rank.arena_bytes += group.targets * aligned(bytes);
      }
    }
  }

  // Until a rank is found to read some of it itself, it receives its share of all that is
  // exchanged.
  void sum_shares() {
    RankSums shares(schedule_.replica_size);
    RankSums kept(schedule_.replica_size);
    RankSums arena(schedule_.replica_size);
    std::vector<RankRun> runs;
    for (std::size_t i = 0; i < geometries_.example.size(); ++i) {
      if (geometries_.tensors[i] == 0) continue;
      const std::uint32_t example = geometries_.example[i];
      const bool replicated = is_replicated(schedule_, example);
      rank_runs(schedule_, example, runs);
      for (const RankRun& run : runs) {
        const std::uint64_t ranks = replicated ? schedule_.world : run.end - run.first;
        if (!schedule_.sliced[example]) shares.add(run, geometries_.tensors[i] * run.share_bytes);
        if (is_target(schedule_, example)) {
          kept.add(run, geometries_.tensors[i] * run.share_bytes);
          const std::uint64_t in_arena =
              fills_lent_memory(schedule_) ? 0 : aligned(run.share_bytes);
          arena.add(run, geometries_.tensors[i] * in_arena);
        }
        totals_[i].kept += ranks * run.share_bytes;
        totals_[i].packed += replicated ? 0 : ranks * aligned(run.share_bytes);
      }
    }
    const std::vector<std::uint64_t> share_bytes = std::move(shares).take();
    const std::vector<std::uint64_t> kept_bytes = std::move(kept).take();
    const std::vector<std::uint64_t> arena_bytes = std::move(arena).take();
    for (RankSummary& rank : schedule_.ranks) {
      const std::uint32_t shard = shard_index(schedule_, rank.rank);
      rank.received_bytes = share_bytes[shard];
      rank.kept_bytes += kept_bytes[shard];
      rank.arena_bytes += arena_bytes[shard];
    }
  }

  // Of each tensor that is sliced, every rank reads what it keeps.
  void add_slices(std::span<const ReadGroup> groups) {
    if (groups.empty()) return;
    std::uint64_t slab_bytes = 0;
    for (const ReadGroup& group : groups) slab_bytes = std::max(slab_bytes, largest_slab(group));
    std::map<std::vector<bool>, std::vector<std::uint32_t>>
        files;  // by the geometries that are read
    for (RankSummary& rank : schedule_.ranks) {
      rank.slab_bytes = std::max(rank.slab_bytes, slab_bytes);
      std::vector<bool> is_read(geometries_.example.size());
      for (std::size_t i = 0; i < is_read.size(); ++i) {
        const std::uint32_t example = geometries_.example[i];
        if (geometries_.tensors[i] == 0 || !schedule_.sliced[example]) continue;
        const std::uint64_t bytes = slice_bytes(schedule_, example, rank.rank, columns_);
        rank.sliced_bytes += geometries_.tensors[i] * bytes;
        is_read[i] = bytes != 0;
      }
      rank.read_bytes += rank.sliced_bytes;
      const auto [found, is_new] = files.try_emplace(is_read);
      if (is_new) found->second = files_with(is_read);
      add_files(found->second, rank);
    }
  }

  // Both ascend.
  static void add_files(const std::vector<std::uint32_t>& files, RankSummary& rank) {
    std::vector<std::uint32_t> all;
    all.reserve(std::max(files.size(), rank.files.size()));
    std::ranges::set_union(files, rank.files, std::back_inserter(all));
    rank.files = std::move(all);
  }

  // From which slices of these geometries are read.
  std::vector<std::uint32_t> files_with(const std::vector<bool>& geometries) const {
    std::vector<std::uint32_t> files;
    for (const Read& read : schedule_.slices) {
      if (!geometries[geometries_.of_tensor[read.tensor]]) continue;
      const std::uint32_t file = schedule_.catalog.tensors()[read.tensor].file;
      if (files.empty() || files.back() != file) files.push_back(file);
    }
    sort_files(files);
    return files;
  }

  // In layer order, reads return to a file.
  static void sort_files(std::vector<std::uint32_t>& files) {
    std::ranges::sort(files);
    files.erase(std::unique(files.begin(), files.end()), files.end());
  }

  // For any rank: what lies between two parts may leave up to two pages of the slab unused.
  std::uint64_t largest_slab(const ReadGroup& group) const {
    std::uint64_t bytes = 0;
    for (const Read& read : group.reads) {
      bytes +=
          Segments(schedule_.cuts[read.tensor], schedule_.window).step() + 2 * core::page_bytes;
    }
    return core::align_up(bytes, core::page_bytes);
  }

  void add_group(const ReadGroup& group) {
    RankSummary& reader = schedule_.ranks[group.reader];
    slab_at(schedule_, group.wave, group.reader, slab_);
    for (const FileRange& range : slab_.file_ranges) note_file(reader, range.file);
    const std::uint32_t tensor = group.reads.front().tensor;
    if (Segments(schedule_.cuts[tensor], schedule_.window).count() > 1) {
      segment_reads_.push_back({geometries_.of_tensor[tensor], group.reader, &group.reads.front()});
      return;
    }
    reader.slab_bytes = std::max(reader.slab_bytes, slab_bytes(slab_));
    std::uint64_t packed = 0;
    for (const Read& read : group.reads) packed += add_whole(reader, read.tensor);
    reader.pack_bytes = std::max(reader.pack_bytes, packed);
  }

  static void note_file(RankSummary& reader, std::uint32_t file) {
    if (reader.files.empty() || reader.files.back() != file) reader.files.push_back(file);
  }

  // Returns what the reader packs of a tensor that it reads in one segment.
  std::uint64_t add_whole(RankSummary& reader, std::uint32_t tensor) {
    const Totals& totals = totals_[geometries_.of_tensor[tensor]];
    const std::uint64_t own = share_bytes(schedule_, tensor, reader.rank, columns_);
    add_moved(reader, schedule_.catalog.tensors()[tensor].bytes, totals.kept, own);
    if (!passed_on_.empty() && !is_replicated(schedule_, tensor)) {
      for (const RankRun& run : runs_of(tensor)) {
        passed_on_[replica_of(schedule_, reader.rank)].add(run, run.share_bytes);
      }
    }
    return is_replicated(schedule_, tensor) ? 0 : totals.packed - aligned(own);
  }

  static void add_moved(RankSummary& reader, std::uint64_t read, std::uint64_t kept_by_all,
                        std::uint64_t own) {
    reader.read_bytes += read;
    reader.sent_bytes += kept_by_all - own;
    reader.received_bytes -= own;
  }

  // By geometry, so that data computed for one is kept only while it is needed.
  void add_segments() {
    std::sort(segment_reads_.begin(), segment_reads_.end(),
              [](const SegmentRead& a, const SegmentRead& b) { return a.geometry < b.geometry; });
    for (auto first = segment_reads_.begin(); first != segment_reads_.end();) {
      const auto end = std::find_if(first, segment_reads_.end(), [&](const SegmentRead& read) {
        return read.geometry != first->geometry;
      });
      add_segments_of(first->geometry, {first, end});
      first = end;
    }
  }

  void add_segments_of(std::uint32_t geometry, std::span<const SegmentRead> reads) {
    const std::uint32_t example = geometries_.example[geometry];
    const std::vector<std::uint64_t> indices = representative_segments(schedule_, example);
    const Segments segments(schedule_.cuts[example], schedule_.window);
    const ColumnTotals totals(schedule_, example);
    PackLoad load(indices.size());
    for_each_segment_share(
        schedule_, example, indices, [&](std::uint32_t, const RankColumns& columns, std::size_t i) {
          load.add(i, share_in_run(example, columns, segments.bytes(indices[i])));
        });
    load.sort();
    for (const SegmentRead& read : reads) {
      RankSummary& reader = schedule_.ranks[read.reader];
      add_read(reader, *read.read, segments, totals);
      if (is_replicated(schedule_, example)) continue;
      const std::uint64_t packed = load.most([&](std::size_t i) {
        return share_in_run(example, columns_, segments.bytes(indices[i]));
      });
      reader.pack_bytes = std::max(reader.pack_bytes, packed);
    }
  }

  std::uint64_t share_in_run(std::uint32_t tensor, const RankColumns& columns,
                             const Range& segment) const {
    const Share share = share_of(schedule_.cuts[tensor], columns, segment.begin, segment.end);
    return aligned(converted_bytes(schedule_, tensor, share.bytes));
  }

  // Leaves in `columns_` those of the reader.
  void add_read(RankSummary& reader, const Read& read, const Segments& segments,
                const ColumnTotals& totals) {
    const std::uint64_t begin = segments.bytes(read.first_segment).begin;
    const std::uint64_t end =
        segments.bytes(std::uint64_t{read.first_segment} + read.segments - 1).end;
    columns_.assign(schedule_, read.tensor, reader.rank);
    const Share own = share_of(schedule_.cuts[read.tensor], columns_, begin, end);
    add_moved(reader, end - begin,
              converted_bytes(schedule_, read.tensor, totals.before(end) - totals.before(begin)),
              converted_bytes(schedule_, read.tensor, own.bytes));
    pass_on(read.tensor, {begin, end}, replica_of(schedule_, reader.rank));
    // For any position of the segment's begin within a page of its file.
    reader.slab_bytes =
        std::max(reader.slab_bytes,
                 core::align_up(core::page_bytes - 1 + segments.step(), core::page_bytes));
  }

  // What the ranks of a replica keep of stored bytes that one of them reads.
  void pass_on(std::uint32_t tensor, const Range& range, std::uint32_t replica) {
    if (passed_on_.empty()) return;
    RankColumns columns;
    for_each_receiver(schedule_, tensor, columns, [&](std::uint32_t rank, const RankColumns& kept) {
      const Share share = share_of(schedule_.cuts[tensor], kept, range.begin, range.end);
      const std::uint64_t bytes = converted_bytes(schedule_, tensor, share.bytes);
      passed_on_[replica].add({rank, rank + 1, kept.row_bytes(), bytes}, bytes);
    });
  }

  // Each rank sends to its twins what it keeps of all that its replica reads.
  void add_passed_on() {
    for (std::uint32_t replica = 0; replica < passed_on_.size(); ++replica) {
      const std::vector<std::uint64_t> bytes = std::move(passed_on_[replica]).take();
      for (std::uint32_t shard = 0; shard < schedule_.replica_size; ++shard) {
        RankSummary& rank = schedule_.ranks[replica * schedule_.replica_size + shard];
        rank.sent_bytes += (schedule_.replicas - 1) * bytes[shard];
      }
    }
  }

  // Each reader's slabs may need the most in different waves; the sum is enough for all. Of slices,
  // only a rank's own land.
  void add_landing(std::span<const ReadGroup> exchanged, std::span<const ReadGroup> sliced) {
    if (!anything_lands(schedule_)) return;
    std::vector<std::vector<std::uint64_t>> most(schedule_.world);  // [reader][shard]
    for (const ReadGroup& group : exchanged) note_landing(group, most[group.reader]);
    std::vector<std::uint64_t> of_slices;  // [shard]
    for (const ReadGroup& group : sliced) note_landing(group, of_slices);
    for (RankSummary& rank : schedule_.ranks) {
      const std::uint32_t shard = shard_index(schedule_, rank.rank);
      for (const std::vector<std::uint64_t>& of_reader : most) {
        if (!of_reader.empty()) rank.landing_bytes += of_reader[shard];
      }
      if (!of_slices.empty()) rank.landing_bytes = std::max(rank.landing_bytes, of_slices[shard]);
    }
  }

  void note_landing(const ReadGroup& group, std::vector<std::uint64_t>& most) {
    const std::vector<std::uint64_t> landing = landing_of(group);
    most.resize(landing.size());
    std::ranges::transform(landing, most, most.begin(),
                           [](std::uint64_t a, std::uint64_t b) { return std::max(a, b); });
  }

  // By shard: the most of a landing buffer that one slab of the group takes.
  std::vector<std::uint64_t> landing_of(const ReadGroup& group) {
    RankSums landing(schedule_.replica_size);
    for (const Read& read : group.reads) {
      const std::uint32_t tensor = read.tensor;
      const bool at_reader = lands_at_reader(schedule_, tensor);
      if (!schedule_.lands[tensor] || (schedule_.sliced[tensor] && !at_reader)) continue;
      const Segments segments(schedule_.cuts[tensor], schedule_.window);
      const std::uint64_t largest = converted_bytes(schedule_, tensor, segments.step());
      for (const RankRun& run : runs_of(tensor)) {
        const std::uint64_t bytes = aligned(std::min(run.share_bytes, largest));
        landing.add(run, bytes);
        const bool has_reader = group.reader >= run.first && group.reader < run.end;
        if (has_reader && !at_reader) landing.add(only(group.reader), 0 - bytes);
      }
    }
    return std::move(landing).take();
  }

  // Of its geometry; computed once, because tensors of one geometry are not read one after the
  // other. Every tensor that is read has bytes, so it has a run.
  const std::vector<RankRun>& runs_of(std::uint32_t tensor) {
    runs_.resize(geometries_.example.size());
    std::vector<RankRun>& runs = runs_[geometries_.of_tensor[tensor]];
    if (runs.empty()) rank_runs(schedule_, tensor, runs);
    return runs;
  }

  Schedule& schedule_;
  const Geometries& geometries_;
  std::vector<Totals> totals_;       // by geometry
  std::vector<RankSums> passed_on_;  // [replica]; empty if there is only one
  std::vector<SegmentRead> segment_reads_;
  std::vector<std::vector<RankRun>> runs_;  // by geometry, as far as needed
  RankColumns columns_;
  Slab slab_;
};

}  // namespace

void summarize(Schedule& schedule, const Geometries& geometries) {
  Summarizer(schedule, geometries).run();
}

std::uint64_t read_bytes(const Schedule& schedule) {
  std::uint64_t bytes = 0;
  for (const RankSummary& rank : schedule.ranks) bytes += rank.read_bytes;
  return bytes;
}

}  // namespace safeshuffle::plan
