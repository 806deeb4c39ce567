// The pack kernel's work, thread by thread: threads are independent, so the CPU can run the same
// code in any order.
//
// A warp takes consecutive vectors, its threads neighbouring ones, and each thread several of them
// one warp apart; all their loads are issued before the first is used. If these lie within one row,
// as nearly all do in long rows, only the first has to be located.
//
// Each thread loads the aligned vectors that contain its source bytes and shifts them into place;
// it loads no vector that contains none. Adjacent threads both load the vector at their boundary;
// the second load hits the L1 cache.
#pragma once

#include <cstdint>

#include "device/cuda/device_code.hpp"
#include "device/cuda/pack_convert.hpp"
#include "device/cuda/pack_entry.hpp"

namespace safeshuffle::device {

/// A vector's place: its row, and its number within the row.
struct PackCursor {
  std::uintptr_t source = 0;       ///< address of the row
  std::uintptr_t destination = 0;  ///< address of the row
  std::uint64_t vector = 0;
};

/// The item's vector `index` < 2^64.
SAFESHUFFLE_DEVICE_CODE PackCursor locate(const PackEntry& entry, std::uint64_t index) {
  std::uint64_t row = multiply_high(index, entry.reciprocal);  // right, or one too few
  std::uint64_t vector = index - row * entry.row_vectors;
  if (vector >= entry.row_vectors) {
    ++row;
    vector -= entry.row_vectors;
  }
  return {reinterpret_cast<std::uintptr_t>(entry.source) + row * entry.source_stride,
          reinterpret_cast<std::uintptr_t>(entry.destination) + row * entry.destination_stride,
          vector};
}

/// Advances by one step: `warp_threads` vectors.
SAFESHUFFLE_DEVICE_CODE void step(const PackEntry& entry, PackCursor& cursor) {
  cursor.source += entry.source_step;
  cursor.destination += entry.destination_step;
  cursor.vector += entry.step_vectors;
  if (cursor.vector >= entry.row_vectors) {
    cursor.source += entry.source_stride;
    cursor.destination += entry.destination_stride;
    cursor.vector -= entry.row_vectors;
  }
}

/// Where one destination vector comes from and goes. If the elements of the destination are not
/// aligned to their size, its vectors are offset likewise, so that no element spans two of them.
struct VectorMove {
  std::uintptr_t aligned = 0;      ///< address of the first load, a multiple of 16
  int shift = 0;                   ///< bytes to skip from there
  std::uintptr_t destination = 0;  ///< address of the vector
  int begin = 0;                   ///< only the bytes [begin, end) of the vector are in the row:
  int end = 0;                     ///< nothing else is read for it, or written
};

/// Bytes from the start of the row to that of the vector; negative if the vector starts before it.
template <typename Convert>
SAFESHUFFLE_DEVICE_CODE std::int64_t position_in_row(const PackCursor& cursor) {
  const auto lead = cursor.destination & (vector_bytes - Convert::to_bytes);
  return static_cast<std::int64_t>(cursor.vector * vector_bytes - lead);
}

template <typename Convert>
SAFESHUFFLE_DEVICE_CODE VectorMove move_at(const PackEntry& entry, const PackCursor& cursor) {
  const std::int64_t position = position_in_row<Convert>(cursor);
  const std::int64_t rest = static_cast<std::int64_t>(entry.row_bytes) - position;
  const auto source = cursor.source + static_cast<std::uintptr_t>(Convert::source_of(position));
  VectorMove move;
  move.shift = static_cast<int>(source % vector_bytes);
  move.aligned = source - static_cast<unsigned>(move.shift);
  move.destination = cursor.destination + static_cast<std::uintptr_t>(position);
  move.begin = position < 0 ? static_cast<int>(-position) : 0;
  move.end = rest < 0 ? 0 : rest < vector_bytes ? static_cast<int>(rest) : int{vector_bytes};
  return move;
}

/// Whether all of `count` vectors, a step apart, are whole, aligned and in this row.
template <typename Convert, unsigned count>
SAFESHUFFLE_DEVICE_CODE bool starts_whole_run(const PackEntry& entry, const PackCursor& cursor) {
  constexpr std::int64_t span = ((count - 1) * warp_threads + 1) * vector_bytes;
  const std::int64_t position = position_in_row<Convert>(cursor);
  return position >= 0 && static_cast<std::int64_t>(entry.row_bytes) - position >= span &&
         cursor.destination % Convert::to_bytes == 0;
}

/// The aligned vectors that hold what makes one vector, wherever it starts.
template <typename Convert>
struct LoadedSource {
  static constexpr unsigned vectors = (Convert::source_bytes + 2 * vector_bytes - 1) / vector_bytes;
  std::uint32_t words[vectors * 4] = {};
};

/// Loads what makes the bytes [begin, end) of a vector, and nothing if there are none. What makes
/// its first byte lies `shift` < 16 bytes behind `aligned`.
template <typename Convert>
SAFESHUFFLE_DEVICE_CODE LoadedSource<Convert> load_source(std::uintptr_t aligned, int shift,
                                                          int begin, int end) {
  const int first = shift + Convert::source_of(begin);
  const int last = shift + Convert::source_of(end) - 1;
  LoadedSource<Convert> loaded;
  SAFESHUFFLE_UNROLL
  for (int i = 0; i < int{LoadedSource<Convert>::vectors}; ++i) {
    const int offset = i * int{vector_bytes};
    if (begin >= end || offset > last || offset + int{vector_bytes} <= first) continue;
    const Vector vector = load_vector(aligned + static_cast<unsigned>(offset));
    for (int word = 0; word < 4; ++word) loaded.words[4 * i + word] = vector.words[word];
  }
  return loaded;
}

/// Bytes [shift, shift + 4 × count) of the words; shift < 16. Choosing between constant places
/// keeps all of them in registers.
template <unsigned count, unsigned words>
SAFESHUFFLE_DEVICE_CODE void shift_bytes(const std::uint32_t (&source)[words], unsigned shift,
                                         std::uint32_t (&result)[count]) {
  static_assert(words >= count + 4);
  std::uint32_t by_eight[count + 2];
  std::uint32_t by_four[count + 1];
  SAFESHUFFLE_UNROLL
  for (unsigned i = 0; i < count + 2; ++i) {
    by_eight[i] = (shift & 8) != 0 ? source[i + 2] : source[i];
  }
  SAFESHUFFLE_UNROLL
  for (unsigned i = 0; i < count + 1; ++i) {
    by_four[i] = (shift & 4) != 0 ? by_eight[i + 1] : by_eight[i];
  }
  SAFESHUFFLE_UNROLL
  for (unsigned i = 0; i < count; ++i) {
    result[i] = funnel_shift(by_four[i], by_four[i + 1], shift % 4 * 8);
  }
}

template <typename Convert>
SAFESHUFFLE_DEVICE_CODE Vector make_vector(const LoadedSource<Convert>& loaded, int shift) {
  std::uint32_t words[Convert::source_words];
  shift_bytes(loaded.words, static_cast<unsigned>(shift), words);
  return Convert::run(words);
}

/// Stores the bytes [begin, end) of a vector, one by one.
SAFESHUFFLE_DEVICE_CODE void store_bytes(const VectorMove& move, const Vector& vector) {
  const std::uint32_t padded[8] = {vector.words[0], vector.words[1], vector.words[2],
                                   vector.words[3]};
  std::uint32_t words[4];
  shift_bytes(padded, static_cast<unsigned>(move.begin), words);
  SAFESHUFFLE_NO_UNROLL
  for (int i = move.begin; i < move.end; ++i) {
    store_byte(move.destination + static_cast<unsigned>(i), words[0]);
    for (int word = 0; word < 3; ++word) {
      words[word] = funnel_shift(words[word], words[word + 1], 8);
    }
    words[3] >>= 8;
  }
}

SAFESHUFFLE_DEVICE_CODE void store(const VectorMove& move, const Vector& vector) {
  const bool whole = move.begin == 0 && move.end == vector_bytes;
  if (whole && move.destination % vector_bytes == 0) {
    store_vector(move.destination, vector);
  } else {
    store_bytes(move, vector);
  }
}

/// Moves `count` vectors that start a whole run.
template <typename Convert, unsigned count>
SAFESHUFFLE_DEVICE_CODE void move_run(const VectorMove& first) {
  LoadedSource<Convert> loaded[count];
  SAFESHUFFLE_UNROLL
  for (unsigned i = 0; i < count; ++i) {
    loaded[i] = load_source<Convert>(first.aligned + i * warp_threads * Convert::source_bytes,
                                     first.shift, 0, vector_bytes);
  }
  SAFESHUFFLE_UNROLL
  for (unsigned i = 0; i < count; ++i) {
    store_vector(first.destination + i * warp_threads * vector_bytes,
                 make_vector<Convert>(loaded[i], first.shift));
  }
}

/// Moves `count` vectors from the `index`-th on, a step apart, as far as the item has them, and the
/// cursor with them.
template <typename Convert, unsigned count>
SAFESHUFFLE_DEVICE_CODE void move_each(const PackEntry& entry, std::uint64_t index,
                                       PackCursor& cursor) {
  VectorMove moves[count];
  LoadedSource<Convert> loaded[count];
  SAFESHUFFLE_UNROLL
  for (unsigned i = 0; i < count; ++i, step(entry, cursor)) {
    if (index + i * warp_threads < entry.vectors) moves[i] = move_at<Convert>(entry, cursor);
    loaded[i] =
        load_source<Convert>(moves[i].aligned, moves[i].shift, moves[i].begin, moves[i].end);
  }
  SAFESHUFFLE_UNROLL
  for (unsigned i = 0; i < count; ++i) {
    store(moves[i], make_vector<Convert>(loaded[i], moves[i].shift));
  }
}

/// Moves `count` vectors from the `index`-th on, a step apart, as far as the item has them.
template <typename Convert, unsigned count>
SAFESHUFFLE_DEVICE_CODE void move_steps(const PackEntry& entry, std::uint64_t index) {
  PackCursor cursor = locate(entry, index);
  if (starts_whole_run<Convert, count>(entry, cursor)) {
    move_run<Convert, count>(move_at<Convert>(entry, cursor));
    return;
  }
  // Each vector now needs addresses of its own, hence more registers: fewer at once.
  constexpr unsigned at_once = count / 2;
  SAFESHUFFLE_NO_UNROLL
  for (unsigned i = 0; i < count; i += at_once) {
    move_each<Convert, at_once>(entry, index + i * warp_threads, cursor);
  }
}

/// One thread's part of the item's vectors [begin, begin + tile_vectors).
template <typename Convert>
SAFESHUFFLE_DEVICE_CODE void move_tile(const PackEntry& entry, std::uint64_t begin,
                                       unsigned thread) {
  // As many loads at once as there are registers for.
  constexpr unsigned count = Convert::source_bytes > vector_bytes ? 2 : 4;
  const unsigned first = thread / warp_threads * warp_threads * count + thread % warp_threads;
  SAFESHUFFLE_NO_UNROLL
  for (unsigned i = first; i < tile_vectors; i += pack_threads * count) {
    if (begin + i < entry.vectors) move_steps<Convert, count>(entry, begin + i);
  }
}

/// The entry that has the tile: the last one that starts at or before it.
SAFESHUFFLE_DEVICE_CODE const PackEntry& find_entry(const PackEntry* entries, std::uint32_t count,
                                                    std::uint64_t tile) {
  while (count > 1) {
    const std::uint32_t half = count / 2;
    if (entries[half].first_tile <= tile) entries += half;
    count -= half;
  }
  return *entries;
}

/// One thread's part of a tile; `thread` < pack_threads.
SAFESHUFFLE_DEVICE_CODE void pack_tile(const PackEntry* entries, std::uint32_t count,
                                       std::uint64_t tile, unsigned thread) {
  using enum DType;
  const PackEntry& entry = find_entry(entries, count, tile);
  const std::uint64_t begin = (tile - entry.first_tile) * tile_vectors;
  switch (entry.conversion) {
    case Conversion::none:
      return move_tile<CopyVector>(entry, begin, thread);
    case Conversion::f16_to_bf16:
      return move_tile<ConvertVector<F16, BF16>>(entry, begin, thread);
    case Conversion::f16_to_f32:
      return move_tile<ConvertVector<F16, F32>>(entry, begin, thread);
    case Conversion::bf16_to_f16:
      return move_tile<ConvertVector<BF16, F16>>(entry, begin, thread);
    case Conversion::bf16_to_f32:
      return move_tile<ConvertVector<BF16, F32>>(entry, begin, thread);
    case Conversion::f32_to_f16:
      return move_tile<ConvertVector<F32, F16>>(entry, begin, thread);
    case Conversion::f32_to_bf16:
      return move_tile<ConvertVector<F32, BF16>>(entry, begin, thread);
  }
}

/// One thread's part of a launch of `blocks` blocks: the kernel.
SAFESHUFFLE_DEVICE_CODE void pack_tiles(const PackEntry* entries, std::uint32_t count,
                                        std::uint64_t tiles, unsigned block, unsigned blocks,
                                        unsigned thread) {
  for (std::uint64_t tile = block; tile < tiles; tile += blocks) {
    pack_tile(entries, count, tile, thread);
  }
}

}  // namespace safeshuffle::device
