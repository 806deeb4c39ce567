#include "plan/proof_item.hpp"

#include <algorithm>
#include <string>

#include "safeshuffle/error.hpp"

namespace safeshuffle::plan {

void fail_proof(const std::string& tensor, const std::string& cause) {
  throw PlanError(ErrorRecord{.tensor = tensor, .cause = "the plan cannot be proved: " + cause});
}

bool disjoint(std::vector<Range> ranges) {
  const auto by_begin = [](const Range& a, const Range& b) { return a.begin < b.begin; };
  if (!std::is_sorted(ranges.begin(), ranges.end(), by_begin)) {
    std::sort(ranges.begin(), ranges.end(), by_begin);
  }
  const auto overlap = [](const Range& a, const Range& b) { return b.begin < a.end; };
  return std::adjacent_find(ranges.begin(), ranges.end(), overlap) == ranges.end();
}

std::uint64_t kept_bytes(const Cut& cut, const RankColumns& columns, std::uint64_t begin,
                         std::uint64_t end) {
  if (begin / cut.row_bytes != (end - 1) / cut.row_bytes) {
    return (end - begin) / cut.row_bytes * columns.row_bytes();
  }
  const std::uint64_t first = begin % cut.row_bytes;
  const std::uint64_t last = first + (end - begin);
  std::uint64_t kept = 0;
  for (const Columns& interval : columns.columns()) {
    const std::uint64_t from = std::max(first, interval.begin);
    kept += std::max(from, std::min(last, interval.end)) - from;
  }
  return kept;
}

std::uint64_t kept_before(const Cut& cut, const RankColumns& columns, std::uint64_t offset) {
  const std::uint64_t row = offset / cut.row_bytes;
  const std::uint64_t kept = row * columns.row_bytes();
  return offset % cut.row_bytes == 0 ? kept
                                     : kept + kept_bytes(cut, columns, row * cut.row_bytes, offset);
}

const Segment& segment_of(const Slab& slab, std::uint64_t slab_offset) {
  const auto after = std::upper_bound(
      slab.segments.begin(), slab.segments.end(), slab_offset,
      [](std::uint64_t offset, const Segment& segment) { return offset < segment.slab_offset; });
  require(after != slab.segments.begin(), "a pack item reads outside all segments");
  return *(after - 1);
}

PackItem block_item(const Schedule& schedule, const Segment& segment, const Run& run) {
  const DType dtype = schedule.catalog.tensors()[segment.tensor].dtype;
  const std::uint64_t rows =
      std::max<std::uint64_t>(1, run.bytes / schedule.cuts[segment.tensor].row_bytes);
  const std::uint64_t row_bytes = run.bytes / rows;
  return {
      run.offset, 0, rows, row_bytes, row_bytes, row_bytes, dtype, dtype, PackTarget::pack_buffer};
}

std::uint64_t ItemProof::check(const Segment& segment, const PackItem& item, const Place& place) {
  const TensorInfo& tensor = schedule_.catalog.tensors()[segment.tensor];
  const std::uint64_t stored = segment.begin + (item.source - segment.slab_offset);
  if (item.rows == 0 || item.row_bytes == 0 ||
      stored + (item.rows - 1) * item.source_stride + item.row_bytes > segment.end) {
    fail_proof(tensor.name, "a pack item reads outside its segment");
  }
  if (item.from != tensor.dtype || item.to != schedule_.dtypes[segment.tensor]) {
    fail_proof(tensor.name, "a pack item has the wrong types");
  }
  check_ascending(segment.tensor, item);
  check_place(segment, item, place);
  return item.rows * destination_row_bytes(item);
}

// Items of one segment follow each other; rows are the same, columns ascend.
void ItemProof::check_ascending(std::uint32_t tensor, const PackItem& item) {
  if (tensor == last_tensor_ &&
      (item.source < last_source_end_ || (item.rows > 1 && item.rows != last_rows_))) {
    fail_proof(schedule_.catalog.tensors()[tensor].name, "bytes are packed twice");
  }
  last_tensor_ = tensor;
  last_rows_ = item.rows;
  last_source_end_ = item.source + item.row_bytes;
}

void ItemProof::check_place(const Segment& segment, const PackItem& item, const Place& place) {
  const TensorInfo& tensor = schedule_.catalog.tensors()[segment.tensor];
  const Cut& cut = schedule_.cuts[segment.tensor];
  columns_.assign(schedule_, segment.tensor, place.rank);
  const std::uint64_t stored = segment.begin + (item.source - segment.slab_offset);
  const std::uint64_t column = stored % cut.row_bytes;
  const std::span<const Columns> columns = columns_.columns();
  const auto after = std::ranges::upper_bound(columns, column, {}, &Columns::begin);
  const auto index = static_cast<std::size_t>(after - columns.begin()) - 1;
  if (after == columns.begin() || column >= columns[index].end ||
      item.row_bytes > columns[index].end - column) {
    fail_proof(tensor.name, "a pack item sends bytes that rank " + std::to_string(place.rank) +
                                " does not keep");
  }
  if (item.rows > 1 &&
      (item.source_stride != cut.row_bytes ||
       item.destination_stride != converted_bytes(columns_.row_bytes(), item.from, item.to))) {
    fail_proof(tensor.name, "a pack item has the wrong strides");
  }
  const std::uint64_t in_share = stored / cut.row_bytes * columns_.row_bytes() +
                                 columns_.kept().before[index] + (column - columns[index].begin);
  if (place.offset != place.share_offset + converted_bytes(in_share, item.from, item.to)) {
    fail_proof(tensor.name, "bytes go to the wrong place on rank " + std::to_string(place.rank));
  }
}

}  // namespace safeshuffle::plan
