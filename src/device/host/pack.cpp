#include "device/host/pack.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <vector>

#include "core/arithmetic.hpp"
#include "core/cached_rows.hpp"
#include "device/convert.hpp"
#include "device/host/memory.hpp"

namespace safeshuffle::device {
namespace {

/// Tasks end where one of these ends in the destination, or up to `cut_alignment` later: large
/// relative to the cost of scheduling a task, small relative to a slab. If two threads touched a
/// new huge page at the same time, the system would zero it for both.
constexpr std::uint64_t task_bytes = huge_page_bytes;

/// Tasks start at multiples of this within an item, so that no element is split.
constexpr std::uint64_t cut_alignment = 64;

/// Prefetching between converted rows: it slows down shorter rows and does not help longer ones.
constexpr std::uint64_t cache_line = 64;
constexpr std::uint64_t prefetch_minimum = 256;
constexpr std::uint64_t prefetch_reach = 4096;

std::uint64_t source_bytes(const PackItem& item) noexcept {
  return item.rows * item.row_bytes;
}

/// A place in the table: an item, and source bytes before it in that item without row gaps.
struct Position {
  std::size_t item = 0;
  std::uint64_t byte = 0;
};

/// Source bytes of this item from this byte on that belong to one task. Gaps between rows of the
/// destination are not counted.
std::uint64_t bytes_to_cut(const PackItem& item, std::uint64_t byte) {
  const std::uint64_t reached = item.destination + converted_bytes(byte, item.from, item.to);
  const std::uint64_t bytes =
      converted_bytes(task_bytes - reached % task_bytes, item.to, item.from);
  return core::align_up(std::max<std::uint64_t>(bytes, 1), cut_alignment);
}

/// Where each task starts; it ends where the next one starts.
std::vector<Position> cut_into_tasks(std::span<const PackItem> items) {
  std::vector<Position> starts;
  std::uint64_t room = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::uint64_t bytes = source_bytes(items[i]);
    room = std::min(room, bytes_to_cut(items[i], 0));
    for (std::uint64_t byte = 0; byte < bytes;) {
      if (room == 0) {
        starts.push_back({i, byte});
        room = bytes_to_cut(items[i], byte);
      }
      const std::uint64_t rest = bytes - byte;
      const std::uint64_t taken = rest <= room ? rest : core::align_down(room, cut_alignment);
      byte += taken;
      room = taken == rest ? room - taken : 0;
    }
  }
  return starts;
}

/// What a thread reads at a time to convert it, or to take rows from it: it stays in the core's own
/// cache until then.
constexpr std::uint64_t block_bytes = std::uint64_t{256} << 10;

/// Items that are smaller, and no further apart, are read in one call.
constexpr std::uint64_t shortest_read = 2048;

/// Scratch memory of one task, allocated on first use.
class Block {
 public:
  std::span<std::byte> first(std::uint64_t bytes) {
    if (!memory_) memory_ = std::make_unique_for_overwrite<std::byte[]>(block_bytes);
    return {memory_.get(), bytes};
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
};

/// The source's bytes from `offset` on: where they are, or else read into `block`.
const std::byte* fetch(const PackSource& source, std::uint64_t offset, std::uint64_t bytes,
                       Block& block) {
  if (const std::byte* const in_memory = source.view(offset, bytes)) return in_memory;
  const std::span<std::byte> copy = block.first(bytes);
  source.read(offset, copy);
  return copy.data();
}

/// One item, ready to move any part of itself.
class ItemMover {
 public:
  ItemMover(const PackItem& item, const PackBuffers& buffers, Block& block)
      : item_(item),
        block_(&block),
        reads_(buffers.reads),
        source_(reads_ == nullptr ? buffers.source + item.source : nullptr),
        destination_((item.target == PackTarget::arena ? buffers.arena : buffers.pack_buffer) +
                     item.destination) {
    if (item.from == item.to) return;
    convert_ = select_convert(item.from, item.to);
    from_bytes_ = bits(item.from) / 8;
    to_bytes_ = bits(item.to) / 8;
  }

  /// Moves the source bytes [begin, end), counted without row gaps.
  void move(std::uint64_t begin, std::uint64_t end) const {
    if (reads_ != nullptr) {
      is_contiguous(item_) ? read_block(item_.source + begin, converted(begin), end - begin)
                           : read_rows(begin, end);
    } else if (is_contiguous(item_)) {
      move_block(source_ + begin, destination_ + converted(begin), end - begin);
    } else {
      const std::uint64_t row = begin / item_.row_bytes;
      move_rows(source_ + row * item_.source_stride, row, begin % item_.row_bytes, end - begin);
    }
  }

 private:
  std::uint64_t converted(std::uint64_t bytes) const { return bytes / from_bytes_ * to_bytes_; }

  // To `destination` of the item's, from anywhere in the source.
  void read_block(std::uint64_t source, std::uint64_t destination, std::uint64_t bytes) const {
    if (convert_ == nullptr) {
      reads_->read(source, {destination_ + destination, bytes});
      return;
    }
    for (std::uint64_t done = 0; done < bytes;) {
      const std::uint64_t count = std::min(bytes - done, block_bytes);
      convert_(fetch(*reads_, source + done, count, *block_),
               destination_ + destination + converted(done), count / from_bytes_);
      done += count;
    }
  }

  void read_rows(std::uint64_t begin, std::uint64_t end) const {
    const std::uint64_t joint_rows =
        core::are_read_jointly(item_.source_stride) ? block_bytes / item_.source_stride : 1;
    for (std::uint64_t at = begin; at < end;) {
      const std::uint64_t row = at / item_.row_bytes;
      const std::uint64_t skip = at % item_.row_bytes;
      const std::uint64_t rows =
          skip != 0 ? 1 : std::min(joint_rows, core::ceil_div(end - at, item_.row_bytes));
      const std::uint64_t bytes = std::min(rows * item_.row_bytes - skip, end - at);
      if (rows == 1) {
        read_block(item_.source + row * item_.source_stride + skip,
                   row * item_.destination_stride + converted(skip), bytes);
      } else {
        read_jointly(row, bytes);
      }
      at += bytes;
    }
  }

  // `bytes` of rows from `row` on, the last of which may be a part.
  void read_jointly(std::uint64_t row, std::uint64_t bytes) const {
    const std::uint64_t last = (bytes - 1) / item_.row_bytes;
    const std::uint64_t span = last * item_.source_stride + (bytes - last * item_.row_bytes);
    move_rows(fetch(*reads_, item_.source + row * item_.source_stride, span, *block_), row, 0,
              bytes);
  }

  // `left` bytes of rows, from byte `skip` of row `row` on, which begins at `source`.
  void move_rows(const std::byte* source, std::uint64_t row, std::uint64_t skip,
                 std::uint64_t left) const {
    const bool prefetches = convert_ != nullptr && item_.row_bytes >= prefetch_minimum;
    for (; left != 0; ++row, skip = 0, source += item_.source_stride) {
      const std::uint64_t bytes = std::min(item_.row_bytes - skip, left);
      if (prefetches && bytes < left) prefetch(source + item_.source_stride);
      move_block(source + skip, destination_ + row * item_.destination_stride + converted(skip),
                 bytes);
      left -= bytes;
    }
  }

  /// Prefetches the start of the next row, which the hardware cannot predict. memcpy does not need
  /// it; converting rows of 2 KiB becomes more than twice as fast.
  void prefetch(const std::byte* row) const {
    const std::uint64_t reach = std::min(item_.row_bytes, prefetch_reach);
    for (std::uint64_t i = 0; i < reach; i += cache_line) __builtin_prefetch(row + i);
  }

  void move_block(const std::byte* source, std::byte* destination, std::uint64_t bytes) const {
    if (convert_ == nullptr) {
      std::memcpy(destination, source, bytes);
    } else {
      convert_(source, destination, bytes / from_bytes_);
    }
  }

  const PackItem& item_;
  Block* block_;
  const PackSource* reads_;
  const std::byte* source_;
  std::byte* destination_;
  ConvertFunction convert_ = nullptr;
  std::uint64_t from_bytes_ = 1;
  std::uint64_t to_bytes_ = 1;
};

/// Of tasks that run on several threads: after it, no task begins.
class FirstError {
 public:
  template <class Step>
  void attempt(const Step& step) {
    if (failed_) return;
    try {
      step();
    } catch (...) {
      if (!failed_.exchange(true)) error_ = std::current_exception();
    }
  }

  /// After the last task.
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
};

std::uint64_t source_end(const PackItem& item) noexcept {
  return item.source + (item.rows - 1) * item.source_stride + item.row_bytes;
}

/// How many of the first items are small and lie close together, one after the other, so that they
/// are read with what lies between them.
std::size_t count_together(std::span<const PackItem> items) {
  std::size_t count = 0;
  for (std::uint64_t end = 0; count < items.size(); ++count) {
    const PackItem& item = items[count];
    const bool follows = count == 0 || (item.source >= end && item.source - end < shortest_read &&
                                        source_end(item) - items.front().source <= block_bytes);
    if (!follows || source_bytes(item) >= shortest_read) break;
    end = source_end(item);
  }
  return count;
}

void read_and_move(std::span<const PackItem> items, const PackBuffers& buffers, Block& block) {
  const std::uint64_t begin = items.front().source;
  const std::uint64_t bytes = source_end(items.back()) - begin;
  PackBuffers from_block = buffers;
  from_block.source = fetch(*buffers.reads, begin, bytes, block);
  from_block.reads = nullptr;
  for (PackItem item : items) {
    item.source -= begin;
    ItemMover(item, from_block, block).move(0, source_bytes(item));
  }
}

void run_task(std::span<const PackItem> items, const PackBuffers& buffers, Position begin,
              Position end) {
  Block block;
  for (std::size_t i = begin.item; i < items.size() && i <= end.item; ++i) {
    const std::uint64_t first = i == begin.item ? begin.byte : 0;
    const std::uint64_t last = i == end.item ? end.byte : source_bytes(items[i]);
    if (buffers.reads != nullptr && first == 0 && i < end.item) {
      const auto whole = items.subspan(i, end.item - i);
      if (const std::size_t together = count_together(whole); together > 1) {
        read_and_move(whole.first(together), buffers, block);
        i += together - 1;
        continue;
      }
    }
    if (first < last) ItemMover(items[i], buffers, block).move(first, last);
  }
}

}  // namespace

void pack_on_host(std::span<const PackItem> items, const PackBuffers& buffers,
                  core::ThreadPool& pool) {
  const std::vector<Position> starts = cut_into_tasks(items);
  const Position end{items.size(), 0};
  FirstError error;
  pool.parallel_for(starts.size(), [&](std::size_t task) {
    error.attempt([&] {
      run_task(items, buffers, starts[task], task + 1 < starts.size() ? starts[task + 1] : end);
    });
  });
  error.rethrow();
}

}  // namespace safeshuffle::device
