#include "plan/proof_destination.hpp"

#include <algorithm>

#include "core/arithmetic.hpp"
#include "plan/waves.hpp"

namespace safeshuffle::plan {
namespace {

// Smaller elements are copied as bytes.
std::uint64_t unit_bytes(DType dtype) {
  return std::max(bits(dtype) / 8, 1U);
}

}  // namespace

DestinationProof::DestinationProof(const Schedule& schedule, std::uint32_t rank,
                                   const LentMemory& lent)
    : schedule_(schedule), rank_(rank), lent_(lent), written_(lent.copies.size()) {}

void DestinationProof::check_wave(std::uint32_t wave, const Outgoing& outgoing,
                                  const Incoming& incoming) {
  std::vector<PackItem> own = outgoing.items;
  std::erase_if(own, [](const PackItem& item) { return item.target != PackTarget::arena; });
  place_slab(wave);
  check_items(own);
  placed_.clear();
  std::span<const PackItem> spared = incoming.spared;
  place_received(incoming.receives, wave, false, spared);
  place_received(incoming.broadcasts, wave, true, spared);
  require(spared.empty(), "a run is not received where it belongs");
  check_items(incoming.unpack);
  check_items(incoming.spared);
}

void DestinationProof::check_all_written() const {
  for (std::size_t i = 0; i < written_.size(); ++i) {
    std::uint64_t bytes = lent_.copies[i].run_bytes;
    for (const StridedCopy::Loop& loop : lent_.copies[i].loops) bytes *= loop.count;
    if (written_[i] != bytes)
      fail(lent_.copies[i].tensor, "not all of a copy is written, or twice");
  }
}

// What lands as well is not taken from the slab.
void DestinationProof::place_slab(std::uint32_t wave) {
  placed_.clear();
  slab_at(schedule_, wave, rank_, slab_);
  for (const Segment& segment : slab_.segments) {
    if (lands_at_reader(schedule_, segment.tensor)) continue;
    placed_.push_back({segment, segment.slab_offset,
                       segment.slab_offset + (segment.end - segment.begin), 0, nullptr});
  }
}

// What is received in lent memory is as if it had landed and had been copied, as one block, by the
// item that was spared.
void DestinationProof::place_received(std::span<const Run> runs, std::uint32_t wave,
                                      bool replicated, std::span<const PackItem>& spared) {
  for (Run run : runs) {
    if (run.memory == RunMemory::arena) {
      require(run.peer != rank_ && !spared.empty() && is_one_block(spared.front()) &&
                  spared.front().rows * spared.front().row_bytes == run.bytes &&
                  spared.front().destination == run.offset,
              "a run is not received where it belongs");
      run.memory = RunMemory::landing;
      run.offset = spared.front().source;
      spared = spared.subspan(1);
    }
    place_landed(run, wave, replicated);
  }
}

// Shares land one after the other, aligned.
void DestinationProof::place_landed(const Run& run, std::uint32_t wave, bool replicated) {
  require(run.memory == RunMemory::landing && (replicated || run.peer != rank_),
          "what fills lent memory does not land");
  slab_at(schedule_, wave, run.peer, slab_);
  std::uint64_t begin = run.offset;
  std::uint64_t end = run.offset;
  for (const Segment& segment : slab_.segments) {
    if (is_replicated(schedule_, segment.tensor) != replicated) continue;
    const Cut& cut = schedule_.cuts[segment.tensor];
    columns_.assign(schedule_, segment.tensor, rank_);
    const std::uint64_t bytes = kept_bytes(cut, columns_, segment.begin, segment.end);
    if (bytes == 0) continue;
    end = begin + bytes;
    placed_.push_back(
        {segment, begin, end, kept_before(cut, columns_, segment.begin), &columns_.kept()});
    begin = core::align_up(end, arena_alignment);
  }
  require(end == run.offset + run.bytes, "a run that lands has another size than its shares");
}

void DestinationProof::check_items(std::span<const PackItem> items) {
  std::ranges::sort(placed_, {}, &Placed::begin);
  last_placed_ = nullptr;
  for (const PackItem& item : items) {
    const auto after = std::ranges::upper_bound(placed_, item.source, {}, &Placed::begin);
    require(after != placed_.begin(), "an item reads what is not for lent memory");
    check_item(*(after - 1), item);
  }
}

void DestinationProof::check_item(const Placed& placed, const PackItem& item) {
  const std::uint32_t tensor = placed.segment.tensor;
  if (item.rows == 0 || item.row_bytes == 0 || item.target != PackTarget::arena ||
      item.source >= placed.end || item.row_bytes > placed.end - item.source ||
      (item.rows > 1 &&
       (item.source_stride < item.row_bytes ||
        (placed.end - item.source - item.row_bytes) / item.source_stride < item.rows - 1))) {
    fail(tensor, "an item reads outside what is there of the tensor");
  }
  const std::uint64_t stored = stored_at(placed, item.source);
  const std::uint64_t stride = item.rows == 1 ? 0 : stored_stride(placed, item);
  require_row(placed, item, 0, stored);
  require_row(placed, item, item.rows - 1, stored + (item.rows - 1) * stride);
  if (last_placed_ != &placed) copy_ = free_from_ = 0;
  last_placed_ = &placed;
  find_copy(tensor, stored, item);
  if (stored < free_from_) fail(tensor, "an element is written twice");
  free_from_ = stored + (item.rows - 1) * stride + item.row_bytes;
  check_rows(tensor, stored, item, stride);
}

// A row of the item is one of stored bytes.
void DestinationProof::require_row(const Placed& placed, const PackItem& item, std::uint64_t row,
                                   std::uint64_t stored) const {
  const std::uint64_t source = item.source + row * item.source_stride;
  if (stored_at(placed, source) != stored ||
      stored_at(placed, source + item.row_bytes - 1) != stored + item.row_bytes - 1) {
    fail(placed.segment.tensor, "a row of an item is not one of the tensor");
  }
}

// By counting the columns that are kept.
std::uint64_t DestinationProof::stored_at(const Placed& placed, std::uint64_t source) const {
  const std::uint64_t in_place = source - placed.begin;
  if (placed.kept == nullptr) return placed.segment.begin + in_place;
  const KeptColumns& kept = *placed.kept;
  const std::uint64_t in_share = placed.prefix + in_place;
  const std::uint64_t in_row = in_share % kept.row_bytes;
  const auto after = std::ranges::upper_bound(kept.before, in_row);
  const auto index = static_cast<std::size_t>(after - kept.before.begin()) - 1;
  return in_share / kept.row_bytes * schedule_.cuts[placed.segment.tensor].row_bytes +
         kept.columns[index].begin + (in_row - kept.before[index]);
}

// How far rows lie apart in the tensor. If they lie in the same columns, or all bytes between them
// are there, this follows from the distance of their sources.
std::uint64_t DestinationProof::stored_stride(const Placed& placed, const PackItem& item) const {
  if (placed.kept == nullptr) return item.source_stride;
  const std::uint64_t share_row = placed.kept->row_bytes;
  if (item.source_stride % share_row == 0) {
    return item.source_stride / share_row * schedule_.cuts[placed.segment.tensor].row_bytes;
  }
  const std::uint64_t first = stored_at(placed, item.source);
  const std::uint64_t span = (item.rows - 1) * item.source_stride + item.row_bytes;
  if (stored_at(placed, item.source + span - 1) - first == span - 1) return item.source_stride;
  const std::uint64_t stride = stored_at(placed, item.source + item.source_stride) - first;
  for (std::uint64_t row = 1; row < item.rows; ++row) {
    require_row(placed, item, row, first + row * stride);
  }
  return stride;
}

// Items of one segment belong to one copy after the other.
void DestinationProof::find_copy(std::uint32_t tensor, std::uint64_t stored, const PackItem& item) {
  const std::span<const StridedCopy> copies = copies_of(lent_, tensor);
  for (; copy_ < copies.size(); ++copy_, free_from_ = 0) {
    const auto place = place_of(copies[copy_], stored);
    if (place && place->destination == item.destination) return;
  }
  fail(tensor, "an item goes where no copy says, or not in order");
}

// Divides the distance from the beginning of the copy by the strides of its loops.
std::optional<DestinationProof::Place> DestinationProof::place_of(const StridedCopy& copy,
                                                                  std::uint64_t stored) {
  if (stored < copy.source) return std::nullopt;
  Place place{copy.destination, stored - copy.source, {}};
  for (const StridedCopy::Loop& loop : copy.loops) {
    const std::uint64_t index = std::min(place.in_run / loop.source_stride, loop.count - 1);
    place.in_run -= index * loop.source_stride;
    place.destination += index * loop.destination_stride;
    place.indices.push_back(index);
  }
  if (place.in_run >= copy.run_bytes || place.in_run % unit_bytes(copy.from) != 0) {
    return std::nullopt;
  }
  place.destination += converted_bytes(place.in_run, copy.from, copy.to);
  return place;
}

// The rows are those of one loop, so what is true of the first and the last is true of all.
void DestinationProof::check_rows(std::uint32_t tensor, std::uint64_t stored, const PackItem& item,
                                  std::uint64_t stride) {
  const StridedCopy& copy = copies_of(lent_, tensor)[copy_];
  const auto first = place_of(copy, stored);
  const auto last = place_of(copy, stored + (item.rows - 1) * stride);
  if (item.from != copy.from || item.to != copy.to || item.row_bytes % unit_bytes(copy.from) != 0) {
    fail(tensor, "an item has the wrong types");
  }
  if (!last || first->in_run + item.row_bytes > copy.run_bytes || last->in_run != first->in_run) {
    fail(tensor, "a row of an item is not in a run of its copy");
  }
  for (std::size_t i = 0; i < copy.loops.size() && item.rows > 1; ++i) {
    const std::uint64_t steps = last->indices[i] - first->indices[i];
    const StridedCopy::Loop& loop = copy.loops[i];
    if (steps == 0) continue;
    if (steps != item.rows - 1 || stride != loop.source_stride ||
        item.destination_stride != loop.destination_stride) {
      fail(tensor, "the rows of an item are not those of a loop of its copy");
    }
  }
  if (item.rows > 1 && first->indices == last->indices) fail(tensor, "a row is written twice");
  const auto index = static_cast<std::size_t>(&copy - lent_.copies.data());
  written_[index] += item.rows * item.row_bytes;
}

void DestinationProof::fail(std::uint32_t tensor, const char* cause) const {
  fail_proof(schedule_.catalog.tensors()[tensor].name, cause);
}

void prove_destinations(const Schedule& schedule, std::uint32_t rank, const LentMemory& lent) {
  TransferPlanner planner(schedule, rank, &lent);
  DestinationProof proof(schedule, rank, lent);
  for (std::uint32_t wave = 0; wave < schedule.waves; ++wave) {
    const Outgoing outgoing = planner.outgoing(wave);
    proof.check_wave(wave, outgoing, planner.incoming(wave));
  }
  proof.check_all_written();
}

}  // namespace safeshuffle::plan
