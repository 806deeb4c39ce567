#include "plan/waves.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <tuple>

#include "safeshuffle/error.hpp"

#include "core/arithmetic.hpp"
#include "core/page.hpp"
#include "plan/geometry.hpp"
#include "plan/landing.hpp"
#include "plan/segments.hpp"

namespace safeshuffle::plan {
namespace {

// Reading a part of less takes as long.
constexpr std::uint64_t smallest_part = std::uint64_t{64} << 10;

bool continues(const Slab& slab, std::uint32_t file, std::uint64_t file_offset) {
  if (slab.file_ranges.empty()) return false;
  const FileRange& last = slab.file_ranges.back();
  return last.file == file && last.file_offset + last.bytes == file_offset;
}

void append(const TensorInfo& tensor, std::uint32_t index, const Range& segment, Slab& slab) {
  const std::uint64_t file_offset = tensor.file_offset + segment.begin;
  if (!continues(slab, tensor.file, file_offset)) {
    std::uint64_t end = 0;
    if (!slab.file_ranges.empty()) {
      end = slab.file_ranges.back().slab_offset + slab.file_ranges.back().bytes;
    }
    slab.file_ranges.push_back(
        {tensor.file, file_offset, 0,
         core::align_up(end, core::page_bytes) + file_offset % core::page_bytes});
  }
  FileRange& range = slab.file_ranges.back();
  slab.segments.push_back({index, segment.begin, segment.end, range.slab_offset + range.bytes});
  range.bytes += segment.size();
}

Range read_part(const Cut& cut, const Range& segment, const RankColumns& columns) {
  if (columns.row_bytes() == 0) return {segment.begin, segment.begin};
  const std::uint64_t row = segment.begin / cut.row_bytes * cut.row_bytes;
  if (segment.end > row + cut.row_bytes) return segment;
  const std::uint64_t begin = std::max(segment.begin, row + columns.columns().front().begin);
  const std::uint64_t end = std::min(segment.end, row + columns.columns().back().end);
  if (begin >= end) return {segment.begin, segment.begin};
  return segment.size() < smallest_part ? segment : Range{begin, end};
}

// What `rank` reads of the tensor for one of its waves, counted from 0.
Range slice_for(const Schedule& schedule, const Read& read, std::uint32_t wave, std::uint32_t rank,
                RankColumns& columns) {
  const Cut& cut = schedule.cuts[read.tensor];
  const Segments segments(cut, schedule.window);
  columns.assign(schedule, read.tensor, rank);
  const auto segment = segment_for(read, wave, segments, stretch_of(segments, columns));
  return segment ? read_part(cut, segments.bytes(*segment), columns) : Range{};
}

// The reads of which a segment may lie in `wave`: those that begin there, or the last before it.
std::span<const Read> candidates(const std::vector<Read>& reads, std::uint32_t wave) {
  const auto later = [](std::uint32_t w, const Read& read) { return w < read.wave; };
  const auto end = std::upper_bound(reads.begin(), reads.end(), wave, later);
  if (end == reads.begin()) return {};
  auto begin = end - 1;
  while (begin != reads.begin() && (begin - 1)->wave == begin->wave) --begin;
  return {begin, end};
}

// Numbers the reads of one rank, in order.
class WaveNumbers {
 public:
  WaveNumbers(const Schedule& schedule, std::uint64_t first_free, std::span<Read> reads)
      : schedule_(schedule), rest_(reads), end_(first_free) {}

  /// The wave after those so far.
  std::uint64_t end() const noexcept { return end_; }

  void number_rest() {
    while (!rest_.empty()) number_next();
  }

  void number_depth(std::uint32_t depth) {
    while (!rest_.empty() && schedule_.layers.depth[rest_.front().tensor] == depth) number_next();
  }

  /// What follows begins with a slab for the wave before `end`, unless that has been reached.
  void catch_up(std::uint64_t end) {
    if (end_ < end) begin_at(end - 1);
  }

  /// What follows begins with a slab for `wave`.
  void begin_at(std::uint64_t wave) {
    end_ = wave;
    room_ = 0;
  }

 private:
  void number_next() {
    Read& read = rest_.front();
    const TensorInfo& tensor = schedule_.catalog.tensors()[read.tensor];
    const bool whole = tensor.bytes <= schedule_.window;
    const bool shares_slab = whole && tensor.bytes <= room_;
    const std::uint64_t wave = shares_slab ? end_ - 1 : end_;
    end_ = wave + read.segments;
    const bool closes_slab = !whole || is_padded(schedule_, read.tensor);
    room_ = closes_slab ? 0 : (shares_slab ? room_ : schedule_.window) - tensor.bytes;
    if (end_ > std::numeric_limits<std::uint32_t>::max()) {
      throw PlanError(ErrorRecord{.tensor = tensor.name,
                                  .cause = "the window is so small that waves cannot be counted"});
    }
    read.wave = static_cast<std::uint32_t>(wave);
    rest_ = rest_.subspan(1);
  }

  const Schedule& schedule_;
  std::span<Read> rest_;
  std::uint64_t end_;
  std::uint64_t room_ = 0;  // left in the last slab
};

std::uint64_t last_end(const std::vector<WaveNumbers>& readers) {
  return std::ranges::max_element(readers, {}, &WaveNumbers::end)->end();
}

// A wave ends when all of it has been read and exchanged, so what it has of later layers delays the
// layer that it completes. Of one wave in many, that is little, and smaller waves would slow down
// the whole load; but for the first layer, somebody may be waiting. So it shares no wave with the
// second, only with what precedes it, which is needed as soon.
void number_layers(const Schedule& schedule, std::vector<WaveNumbers>& readers) {
  for (WaveNumbers& reader : readers) reader.number_depth(0);
  for (std::uint32_t depth = first_layer_depth; depth <= schedule.layers.numbers.size(); ++depth) {
    for (WaveNumbers& reader : readers) reader.number_depth(depth);
    const std::uint64_t end = last_end(readers);
    for (WaveNumbers& reader : readers) {
      depth == first_layer_depth ? reader.begin_at(end) : reader.catch_up(end);
    }
  }
}

void append_groups(std::span<const Read> reads, std::uint32_t reader,
                   std::vector<ReadGroup>& groups) {
  while (!reads.empty()) {
    const auto other_wave = [&](const Read& read) { return read.wave != reads.front().wave; };
    const auto end = std::ranges::find_if(reads, other_wave);
    const auto count = static_cast<std::size_t>(end - reads.begin());
    groups.push_back({reads.front().wave, reader, reads.first(count)});
    reads = reads.subspan(count);
  }
}

}  // namespace

Stretch stretch_of(const Segments& segments, const RankColumns& columns) {
  if (columns.row_bytes() == 0) return {};
  if (!segments.within_rows()) return {0, segments.per_line()};
  const std::uint64_t first = columns.columns().front().begin / segments.step();
  const std::uint64_t last = (columns.columns().back().end - 1) / segments.step();
  return {first, last - first + 1};
}

std::uint64_t slice_waves(const Schedule& schedule, std::uint32_t tensor) {
  const Segments segments(schedule.cuts[tensor], schedule.window);
  if (is_replicated(schedule, tensor)) return segments.count();
  std::uint64_t longest = 1;
  RankColumns columns;
  for_each_receiver(schedule, tensor, columns, [&](std::uint32_t, const RankColumns& kept) {
    longest = std::max(longest, stretch_of(segments, kept).count);
  });
  return segments.lines() * longest;
}

std::optional<std::uint64_t> segment_for(const Read& slices, std::uint32_t wave,
                                         const Segments& segments, const Stretch& stretch) {
  const std::uint64_t waves_per_line = slices.segments / segments.lines();
  const std::uint64_t in_line = wave % waves_per_line;
  if (in_line >= stretch.count) return {};
  return wave / waves_per_line * segments.per_line() + stretch.first + in_line;
}

Range read_part(const Schedule& schedule, std::uint32_t tensor, const Range& segment,
                std::uint32_t rank, RankColumns& columns) {
  columns.assign(schedule, tensor, rank);
  return read_part(schedule.cuts[tensor], segment, columns);
}

// Of a stretch, all but the first and the last segment are read alike.
std::uint64_t slice_bytes(const Schedule& schedule, std::uint32_t tensor, std::uint32_t rank,
                          RankColumns& columns) {
  columns.assign(schedule, tensor, rank);
  const Segments segments(schedule.cuts[tensor], schedule.window);
  const auto [first, count] = stretch_of(segments, columns);
  const auto part = [&](std::uint64_t segment) {
    return read_part(schedule.cuts[tensor], segments.bytes(segment), columns).size();
  };
  std::uint64_t bytes = 0;
  if (count > 0) bytes += part(first);
  if (count > 1) bytes += part(first + count - 1);
  if (count > 2) bytes += (count - 2) * part(first + 1);
  return segments.lines() * bytes;
}

std::uint32_t number_waves(const Schedule& schedule, std::uint32_t first_free,
                           std::span<std::vector<Read>> reads) {
  std::vector<WaveNumbers> readers;
  readers.reserve(reads.size());
  for (std::vector<Read>& list : reads) readers.emplace_back(schedule, first_free, list);
  if (schedule.order == Order::layer) number_layers(schedule, readers);
  for (WaveNumbers& reader : readers) reader.number_rest();
  return static_cast<std::uint32_t>(last_end(readers));
}

void slab_at(const Schedule& schedule, std::uint32_t wave, std::uint32_t reader, Slab& slab) {
  slab.file_ranges.clear();
  slab.segments.clear();
  const bool exchanged = is_exchanged(schedule, wave);
  RankColumns columns;
  for (const Read& read : candidates(exchanged ? schedule.reads[reader] : schedule.slices, wave)) {
    const std::uint32_t index = wave - read.wave;
    if (index >= read.segments) continue;
    const Range part = exchanged ? Segments(schedule.cuts[read.tensor], schedule.window)
                                       .bytes(std::uint64_t{read.first_segment} + index)
                                 : slice_for(schedule, read, index, reader, columns);
    if (part.size() == 0) continue;
    append(schedule.catalog.tensors()[read.tensor], read.tensor, part, slab);
  }
}

std::uint64_t slab_bytes(const Slab& slab) {
  if (slab.file_ranges.empty()) return 0;
  const FileRange& last = slab.file_ranges.back();
  return core::align_up(last.slab_offset + last.bytes, core::page_bytes);
}

std::uint64_t wave_bytes(const Schedule& schedule, std::uint32_t wave) {
  std::uint64_t bytes = 0;
  Slab slab;
  for (std::uint32_t reader = 0; reader < schedule.world; ++reader) {
    slab_at(schedule, wave, reader, slab);
    for (const FileRange& range : slab.file_ranges) bytes += range.bytes;
  }
  return bytes;
}

std::vector<std::uint32_t> complete_after(const Schedule& schedule) {
  std::vector<std::uint32_t> read_by(schedule.catalog.tensors().size());  // wave, by tensor
  const auto add = [&](const std::vector<Read>& reads) {
    for (const Read& read : reads) {
      const std::uint32_t last = read.wave + std::max(read.segments, 1U) - 1;
      read_by[read.tensor] = std::max(read_by[read.tensor], last);
    }
  };
  for (const std::vector<Read>& reads : schedule.reads) add(reads);
  add(schedule.slices);
  std::vector<std::uint32_t> complete(schedule.targets.size());
  for (const Use& use : schedule.uses) {
    complete[use.target] = std::max(complete[use.target], read_by[use.tensor]);
  }
  return complete;
}

std::uint32_t first_complete_wave(const Schedule& schedule) {
  const std::vector<std::uint32_t> complete = complete_after(schedule);
  std::uint32_t first = schedule.waves;
  for (const Use& use : schedule.uses) {
    if (is_read(schedule, use.tensor)) first = std::min(first, complete[use.target]);
  }
  return first;
}

std::vector<ReadGroup> read_groups(const Schedule& schedule) {
  std::vector<ReadGroup> groups;
  for (std::uint32_t reader = 0; reader < schedule.reads.size(); ++reader) {
    append_groups(schedule.reads[reader], reader, groups);
  }
  append_groups(schedule.slices, 0, groups);
  std::sort(groups.begin(), groups.end(), [](const ReadGroup& a, const ReadGroup& b) {
    return std::tie(a.wave, a.reader) < std::tie(b.wave, b.reader);
  });
  return groups;
}

}  // namespace safeshuffle::plan
