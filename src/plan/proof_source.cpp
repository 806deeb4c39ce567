#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/arithmetic.hpp"
#include "core/page.hpp"
#include "plan/proof_item.hpp"
#include "plan/proof_parts.hpp"
#include "plan/segments.hpp"
#include "plan/waves.hpp"

namespace safeshuffle::plan {
namespace {

class SourceProof {
 public:
  SourceProof(const Schedule& schedule, const Geometries& geometries)
      : schedule_(schedule),
        geometries_(geometries),
        tensors_(schedule.catalog.tensors()),
        read_whole_(tensors_.size()) {}

  void check() {
    check_files();
    require(schedule_.exchanged_waves <= schedule_.waves, "it has too few waves");
    check_slices();
    for (const auto& reads : schedule_.reads) check_exchanged(reads);
    check_all_read();
    for (const ReadGroup& group : read_groups(schedule_)) {
      is_exchanged(schedule_, group.wave) ? check_group(group, group.reader) : check_slices(group);
    }
  }

 private:
  // Tensors that are read lie within their files and do not overlap there.
  void check_files() const {
    const TensorInfo* last = nullptr;
    for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
      if (!is_read(schedule_, i)) continue;
      const TensorInfo& tensor = tensors_[i];
      require(tensor.file < schedule_.catalog.files().size(), "a tensor is in an unknown file");
      const FileInfo& file = schedule_.catalog.files()[tensor.file];
      if (!core::in_bounds(tensor.file_offset, tensor.bytes, file.size)) {
        fail_proof(tensor.name, "it ends after the file");
      }
      if (last != nullptr && last->file == tensor.file &&
          last->file_offset + last->bytes > tensor.file_offset) {
        fail_proof(tensor.name, "it overlaps another tensor in the file");
      }
      check_segments(i);
      last = &tensor;
    }
  }

  // Segments repeat by lines, and within a line except for its last, so checking the boundaries of
  // the first and the last segments, of a line and of all, is enough.
  void check_segments(std::uint32_t tensor) const {
    const Segments segments(schedule_.cuts[tensor], schedule_.window);
    const std::uint64_t last = segments.count() - 1;
    bool right = segments.bytes(0).begin == 0 && segments.bytes(last).end == tensors_[tensor].bytes;
    for (const std::uint64_t seam :
         {std::uint64_t{1}, segments.per_line() - 1, segments.per_line(), last}) {
      if (seam == 0 || seam > last) continue;
      right = right && segments.bytes(seam - 1).end == segments.bytes(seam).begin;
    }
    if (!right) fail_proof(tensors_[tensor].name, "its segments are not the whole tensor");
  }

  void check_slices() {
    check_reads(schedule_.slices, schedule_.exchanged_waves, schedule_.waves);
    for (const Read& read : parts_) check_waves(read);
    parts_.clear();
    for (const Read& read : schedule_.slices) {
      if (schedule_.sliced[read.tensor]) continue;
      fail_proof(tensors_[read.tensor].name, "it is not sliced, but all ranks read it");
    }
  }

  // Slices are read in fewer waves than the tensor has segments if different ranks read different
  // segments at the same time. That this is enough is proved with the slabs of each rank.
  void check_waves(const Read& read) {
    const Segments segments(schedule_.cuts[read.tensor], schedule_.window);
    require(read.first_segment == 0 && read.segments % segments.lines() == 0,
            "a part of a tensor is sliced");
    note_whole(read.tensor);
  }

  void check_exchanged(const std::vector<Read>& reads) {
    check_reads(reads, 0, schedule_.exchanged_waves);
    for (const Read& read : reads) {
      if (!schedule_.sliced[read.tensor]) continue;
      fail_proof(tensors_[read.tensor].name, "it is sliced, but one rank reads it for the others");
    }
  }

  // Whole tensors may share a wave with those before; otherwise each segment has one to itself.
  void check_reads(const std::vector<Read>& reads, std::uint64_t first_wave, std::uint64_t waves) {
    std::uint64_t free_from = first_wave;  // the first wave after the reads so far
    bool open = false;                     // whether the last wave can take more
    for (const Read& read : reads) {
      require(read.tensor < tensors_.size(), "an unknown tensor is read");
      const std::string& name = tensors_[read.tensor].name;
      if (!is_read(schedule_, read.tensor)) fail_proof(name, "it is read, but no rank needs it");
      const std::uint64_t count = Segments(schedule_.cuts[read.tensor], schedule_.window).count();
      if (read.segments == 0 || !core::in_bounds(read.first_segment, read.segments, count)) {
        fail_proof(name, "segments are read that it does not have");
      }
      const bool shares = open && count == 1 && std::uint64_t{read.wave} + 1 == free_from;
      if (!shares && read.wave < free_from) fail_proof(name, "its wave is taken");
      free_from = std::uint64_t{read.wave} + read.segments;
      open = count == 1;
      if (free_from > waves) fail_proof(name, "it is read after the last wave");
      read.segments == count ? note_whole(read.tensor) : parts_.push_back(read);
    }
  }

  void note_whole(std::uint32_t tensor) {
    if (read_whole_[tensor]) fail_proof(tensors_[tensor].name, "a segment is read twice");
    read_whole_[tensor] = true;
  }

  void check_all_read() {
    std::sort(parts_.begin(), parts_.end(), [](const Read& a, const Read& b) {
      return std::tie(a.tensor, a.first_segment) < std::tie(b.tensor, b.first_segment);
    });
    auto part = parts_.begin();
    for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
      const std::uint64_t needed =
          is_read(schedule_, i) ? Segments(schedule_.cuts[i], schedule_.window).count() : 0;
      std::uint64_t next = read_whole_[i] ? needed : 0;
      for (; part != parts_.end() && part->tensor == i; ++part) {
        if (part->first_segment < next) fail_proof(tensors_[i].name, "a segment is read twice");
        if (part->first_segment > next) break;
        next += part->segments;
      }
      if (next != needed) {
        fail_proof(tensors_[i].name, "segment " + std::to_string(next) + " of " +
                                         std::to_string(needed) + " is not read");
      }
    }
  }

  // Every rank reads its part. Tensors of one geometry that are read in segments differ by where
  // they lie in their files only.
  void check_slices(const ReadGroup& group) {
    const std::uint32_t tensor = group.reads.front().tensor;
    const bool repeats = Segments(schedule_.cuts[tensor], schedule_.window).count() > 1 &&
                         geometries_.example[geometries_.of_tensor[tensor]] != tensor;
    const std::uint32_t ranks = repeats ? 1 : schedule_.replica_size;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) check_group(group, rank);
  }

  // Of the slabs of a reader; if all ranks read, those of its twins have the same.
  std::uint64_t slab_capacity(std::uint32_t reader, bool exchanged) const {
    std::uint64_t capacity = schedule_.ranks[reader].slab_bytes;
    if (exchanged) return capacity;
    for (std::uint32_t replica = 0; replica < schedule_.replicas; ++replica) {
      const std::uint32_t twin = twin_of(schedule_, reader, replica);
      capacity = std::min(capacity, schedule_.ranks[twin].slab_bytes);
    }
    return capacity;
  }

  // The slabs of a read of many segments differ by a multiple of the segment's bytes only.
  void check_group(const ReadGroup& group, std::uint32_t reader) {
    const bool exchanged = is_exchanged(schedule_, group.wave);
    const std::uint64_t capacity = slab_capacity(reader, exchanged);
    check_slab(group.reads, reader, 0, capacity);
    const Read& read = group.reads.front();
    const Segments segments(schedule_.cuts[read.tensor], schedule_.window);
    if (segments.count() == 1) return;
    require(core::page_bytes - 1 + segments.step() <= capacity, "a segment ends after the slab");
    for (const std::uint32_t index : {std::min(1U, read.segments - 1), read.segments - 1}) {
      check_slab(group.reads, reader, index, capacity);
    }
    if (!exchanged) check_stretch(group, reader, capacity);
  }

  // Of each line, the rank reads all segments with bytes that it keeps. Lines differ by whole rows
  // only.
  void check_stretch(const ReadGroup& group, std::uint32_t rank, std::uint64_t capacity) {
    const Read& read = group.reads.front();
    const Cut& cut = schedule_.cuts[read.tensor];
    const Segments segments(cut, schedule_.window);
    RankColumns columns;
    columns.assign(schedule_, read.tensor, rank);
    const Stretch stretch = stretch_of(segments, columns);
    const std::uint64_t waves = read.segments / segments.lines();
    require(stretch.count <= waves, "a stretch is longer than its waves");
    if (stretch.count != 0) {
      const std::uint64_t last = (segments.lines() - 1) * waves + stretch.count - 1;
      check_slab(group.reads, rank, static_cast<std::uint32_t>(last), capacity);
    }
    for (const std::uint64_t index : representative_segments(segments, columns)) {
      const Range segment = segments.bytes(index);
      if (index >= stretch.first && index - stretch.first < stretch.count) {
        check_slab(group.reads, rank, static_cast<std::uint32_t>(index - stretch.first), capacity);
      } else if (kept_bytes(cut, columns, segment.begin, segment.end) != 0) {
        fail_proof(tensors_[read.tensor].name, "a rank does not read what it keeps");
      }
    }
  }

  // Proves that the slab has segment `index` of each read, or the part of it that the reader keeps,
  // and nothing else.
  void check_slab(std::span<const Read> reads, std::uint32_t reader, std::uint32_t index,
                  std::uint64_t capacity) {
    slab_at(schedule_, reads.front().wave + index, reader, slab_);
    auto next = slab_.segments.begin();
    for (const Read& read : reads) {
      const Range expected = expected_segment(read, reader, index);
      Range found{expected.begin, expected.begin};
      if (next != slab_.segments.end() && next->tensor == read.tensor) {
        found = {next->begin, next->end};
        ++next;
      }
      const bool right = schedule_.sliced[read.tensor]
                             ? has_all_kept(read.tensor, reader, found, expected)
                             : found.begin == expected.begin && found.end == expected.end;
      require(right, "a slab has another segment than its read");
    }
    require(next == slab_.segments.end(), "a slab has other segments than its reads");
    check_ranges(capacity);
  }

  // Of slices, empty where the rank's stretch is over.
  Range expected_segment(const Read& read, std::uint32_t reader, std::uint32_t index) {
    const Segments segments(schedule_.cuts[read.tensor], schedule_.window);
    std::optional<std::uint64_t> segment = std::uint64_t{read.first_segment} + index;
    if (schedule_.sliced[read.tensor]) {
      columns_.assign(schedule_, read.tensor, reader);
      segment = segment_for(read, index, segments, stretch_of(segments, columns_));
    }
    return segment ? segments.bytes(*segment) : Range{};
  }

  bool has_all_kept(std::uint32_t tensor, std::uint32_t rank, const Range& part,
                    const Range& segment) {
    columns_.assign(schedule_, tensor, rank);
    const Cut& cut = schedule_.cuts[tensor];
    return part.begin >= segment.begin && part.end <= segment.end &&
           kept_bytes(cut, columns_, part.begin, part.end) ==
               kept_bytes(cut, columns_, segment.begin, segment.end);
  }

  void check_ranges(std::uint64_t capacity) const {
    std::uint64_t free_from = 0;
    auto segment = slab_.segments.begin();
    for (const FileRange& range : slab_.file_ranges) {
      check_range(range, free_from, capacity);
      free_from = range.slab_offset + range.bytes;
      std::uint64_t covered = 0;
      for (; segment != slab_.segments.end() && covered < range.bytes; ++segment) {
        check_segment(*segment, range, covered);
        covered += segment->end - segment->begin;
      }
      require(covered == range.bytes, "a file range does not hold the segments read with it");
    }
    require(segment == slab_.segments.end(), "a segment is not read");
  }

  void check_range(const FileRange& range, std::uint64_t free_from, std::uint64_t capacity) const {
    require(range.slab_offset >= free_from, "two file ranges overlap in a slab");
    require(core::in_bounds(range.slab_offset, range.bytes, capacity),
            "a file range ends after the slab");
    require(range.slab_offset % core::page_bytes == range.file_offset % core::page_bytes,
            "a slab offset is not congruent to its file offset");
  }

  void check_segment(const Segment& segment, const FileRange& range,
                     std::uint64_t offset_in_range) const {
    const TensorInfo& tensor = tensors_[segment.tensor];
    if (tensor.file != range.file ||
        tensor.file_offset + segment.begin != range.file_offset + offset_in_range ||
        segment.slab_offset != range.slab_offset + offset_in_range) {
      fail_proof(tensor.name, "a segment does not lie where the file has it");
    }
  }

  const Schedule& schedule_;
  const Geometries& geometries_;
  std::span<const TensorInfo> tensors_;
  std::vector<bool> read_whole_;  // by tensor: by one read
  std::vector<Read> parts_;       // all other reads
  RankColumns columns_;           // scratch
  Slab slab_;
};

}  // namespace

void prove_reading(const Schedule& schedule, const Geometries& geometries) {
  SourceProof(schedule, geometries).check();
}

}  // namespace safeshuffle::plan
