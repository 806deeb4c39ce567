#include "device/cuda/pack_table.hpp"

#include <cstddef>

#include "core/arithmetic.hpp"

namespace safeshuffle::device {
namespace {

Conversion conversion(DType from, DType to) {
  using enum DType;
  if (from == F16 && to == BF16) return Conversion::f16_to_bf16;
  if (from == F16 && to == F32) return Conversion::f16_to_f32;
  if (from == BF16 && to == F16) return Conversion::bf16_to_f16;
  if (from == BF16 && to == F32) return Conversion::bf16_to_f32;
  if (from == F32 && to == F16) return Conversion::f32_to_f16;
  if (from == F32 && to == BF16) return Conversion::f32_to_bf16;
  return Conversion::none;
}

/// The same bytes in one row, if they adjoin.
PackItem join_rows(PackItem item) {
  if (!is_contiguous(item)) return item;
  item.row_bytes *= item.rows;
  item.source_stride *= item.rows;
  item.destination_stride *= item.rows;
  item.rows = 1;
  return item;
}

/// Bytes from the start of a row's first vector to the row: those of every row, or the most
/// possible.
std::uint64_t largest_lead(const PackItem& item, const std::byte* destination) {
  const std::uint64_t unit = item.from == item.to ? 1 : bits(item.to) / 8;
  const bool same = item.rows == 1 || item.destination_stride % vector_bytes == 0;
  const std::uint64_t lead =
      same ? reinterpret_cast<std::uintptr_t>(destination) % vector_bytes : vector_bytes - 1;
  return core::align_down(lead, unit);
}

PackEntry make_entry(const PackItem& item, const PackBuffers& buffers) {
  PackEntry entry{
      .source = buffers.source + item.source,
      .destination = (item.target == PackTarget::arena ? buffers.arena : buffers.pack_buffer) +
                     item.destination,
      .row_bytes = destination_row_bytes(item),
      .source_stride = item.source_stride,
      .destination_stride = item.destination_stride,
      .conversion = conversion(item.from, item.to)};
  const std::uint64_t lead = largest_lead(item, entry.destination);
  entry.row_vectors = core::ceil_div(lead + entry.row_bytes, vector_bytes);
  entry.vectors = item.rows * entry.row_vectors;
  entry.reciprocal = ~std::uint64_t{0} / entry.row_vectors;
  const std::uint64_t step_rows = warp_threads / entry.row_vectors;
  entry.step_vectors = warp_threads % entry.row_vectors;
  entry.source_step = step_rows * item.source_stride;
  entry.destination_step = step_rows * item.destination_stride;
  return entry;
}

}  // namespace

std::uint64_t make_pack_entries(std::span<const PackItem> items, const PackBuffers& buffers,
                                std::span<PackEntry> entries) {
  std::uint64_t tiles = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    PackEntry entry = make_entry(join_rows(items[i]), buffers);
    entry.first_tile = tiles;
    tiles += core::ceil_div(entry.vectors, tile_vectors);
    entries[i] = entry;
  }
  return tiles;
}

}  // namespace safeshuffle::device
