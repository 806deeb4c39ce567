#include "plan/strided_copy.hpp"

#include <algorithm>

#include "core/arithmetic.hpp"

namespace safeshuffle::plan {
namespace {

using CopyLoop = StridedCopy::Loop;

// The bytes of a run at its destination.
std::uint64_t written_bytes(const StridedCopy& copy, std::uint64_t stored) {
  return converted_bytes(stored, copy.from, copy.to);
}

class CopyItems {
 public:
  CopyItems(const StridedCopy& copy, const Range& part, const KeptPlace& place,
            std::vector<PackItem>& items)
      : copy_(copy), part_(part), place_(place), items_(items) {
    spans_.assign(copy.loops.size() + 1, copy.run_bytes);
    for (std::size_t i = copy.loops.size(); i-- > 0;) {
      spans_[i] = spans_[i + 1] + (copy.loops[i].count - 1) * copy.loops[i].source_stride;
    }
  }

  void append() {
    if (copy_.loops.empty()) {
      append_rows({1, copy_.run_bytes, written_bytes(copy_, copy_.run_bytes)}, copy_.source,
                  copy_.destination);
    } else {
      append_loop(0, copy_.source, copy_.destination);
    }
  }

 private:
  void append_loop(std::size_t depth, std::uint64_t source, std::uint64_t destination) {
    const CopyLoop& loop = copy_.loops[depth];
    if (depth + 1 == copy_.loops.size()) {
      append_rows(loop, source, destination);
      return;
    }
    const auto [first, end] = touched(loop, source, spans_[depth + 1]);
    for (std::uint64_t i = first; i < end; ++i) {
      append_loop(depth + 1, source + i * loop.source_stride,
                  destination + i * loop.destination_stride);
    }
  }

  // The indices of the loop at which the next `span` bytes are partly in the part.
  Range touched(const CopyLoop& loop, std::uint64_t source, std::uint64_t span) const {
    const std::uint64_t first =
        source + span > part_.begin ? 0 : (part_.begin - source - span) / loop.source_stride + 1;
    const std::uint64_t end =
        source >= part_.end ? 0 : core::ceil_div(part_.end - source, loop.source_stride);
    return {std::min(first, loop.count), std::min(end, loop.count)};
  }

  // Of these, the first and the last run may begin before the part or end after it.
  void append_rows(const CopyLoop& loop, std::uint64_t source, std::uint64_t destination) {
    auto [first, end] = touched(loop, source, copy_.run_bytes);
    const auto is_whole = [&](std::uint64_t i) {
      const std::uint64_t begin = source + i * loop.source_stride;
      return begin >= part_.begin && begin + copy_.run_bytes <= part_.end;
    };
    const auto append_cut = [&](std::uint64_t i) {
      append_cut_run(source + i * loop.source_stride, destination + i * loop.destination_stride);
    };
    if (first < end && !is_whole(first)) append_cut(first++);
    const bool cuts_last = first < end && !is_whole(end - 1);
    append_whole_rows(loop, source, destination, {first, cuts_last ? end - 1 : end});
    if (cuts_last) append_cut(end - 1);
  }

  void append_cut_run(std::uint64_t source, std::uint64_t destination) {
    const std::uint64_t begin = std::max(source, part_.begin);
    const std::uint64_t end = std::min(source + copy_.run_bytes, part_.end);
    append_item(begin, destination + written_bytes(copy_, begin - source), end - begin, {});
  }

  // In as few items as the spacing of what is kept allows.
  void append_whole_rows(const CopyLoop& loop, std::uint64_t source, std::uint64_t destination,
                         const Range& indices) {
    for (std::uint64_t i = indices.begin; i < indices.end;) {
      const std::uint64_t begin = source + i * loop.source_stride;
      const Rows rows = evenly_spaced(loop, begin, indices.end - i);
      append_item(begin, destination + i * loop.destination_stride, copy_.run_bytes, rows);
      i += rows.count;
    }
  }

  struct Rows {
    std::uint64_t count = 1;
    std::uint64_t source_stride = 0;  // where they are kept
    std::uint64_t destination_stride = 0;
  };

  // How many of the rows, of which the first is at `stored`, follow it at equal distances.
  Rows evenly_spaced(const CopyLoop& loop, std::uint64_t stored, std::uint64_t count) const {
    const std::uint64_t stride = loop.source_stride;
    if (count == 1) return {};
    if (stride % place_.tensor_row_bytes == 0) {
      return {count, stride / place_.tensor_row_bytes * place_.kept.row_bytes,
              loop.destination_stride};
    }
    const std::uint64_t span = (count - 1) * stride + copy_.run_bytes;
    if (place_.of(stored + span) - place_.of(stored) == span) {  // all of it is kept
      return {count, stride, loop.destination_stride};
    }
    std::uint64_t last = place_.of(stored + stride);
    const std::uint64_t spacing = last - place_.of(stored);
    std::uint64_t even = 2;
    for (; even < count; ++even) {
      const std::uint64_t next = place_.of(stored + even * stride);
      if (next - last != spacing) break;
      last = next;
    }
    return {even, spacing, loop.destination_stride};
  }

  void append_item(std::uint64_t stored, std::uint64_t destination, std::uint64_t bytes,
                   const Rows& rows) {
    const bool single = rows.count == 1;
    items_.push_back({place_.of(stored), destination, rows.count, bytes,
                      single ? bytes : rows.source_stride,
                      single ? written_bytes(copy_, bytes) : rows.destination_stride, copy_.from,
                      copy_.to, PackTarget::arena});
  }

  const StridedCopy& copy_;
  const Range part_;
  const KeptPlace& place_;
  std::vector<PackItem>& items_;
  std::vector<std::uint64_t> spans_;  // stored, of the loops from this depth on
};

}  // namespace

StridedBytes source_of(const StridedCopy& copy) {
  StridedBytes bytes{copy.source, {}, copy.run_bytes};
  for (const CopyLoop& loop : copy.loops) bytes.loops.push_back({loop.count, loop.source_stride});
  return bytes;
}

StridedBytes destination_of(const StridedCopy& copy) {
  StridedBytes bytes{copy.destination, {}, written_bytes(copy, copy.run_bytes)};
  for (const CopyLoop& loop : copy.loops) {
    bytes.loops.push_back({loop.count, loop.destination_stride});
  }
  return bytes;
}

void merge_loops(StridedCopy& copy) {
  std::vector<CopyLoop> merged;  // innermost first
  for (auto loop = copy.loops.rbegin(); loop != copy.loops.rend(); ++loop) {
    if (merged.empty() && loop->source_stride == copy.run_bytes &&
        loop->destination_stride == written_bytes(copy, copy.run_bytes)) {
      copy.run_bytes *= loop->count;
    } else if (!merged.empty() &&
               loop->source_stride == merged.back().source_stride * merged.back().count &&
               loop->destination_stride == merged.back().destination_stride * merged.back().count) {
      merged.back().count *= loop->count;
    } else {
      merged.push_back(*loop);
    }
  }
  copy.loops.assign(merged.rbegin(), merged.rend());
}

void append_copy_items(const StridedCopy& copy, const Range& part, const KeptPlace& place,
                       std::vector<PackItem>& items) {
  if (part.begin < part.end) CopyItems(copy, part, place, items).append();
}

}  // namespace safeshuffle::plan
