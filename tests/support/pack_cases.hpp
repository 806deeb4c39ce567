// Pack tables for tests: the input, and the result on the CPU. Whole targets are compared,
// including gaps, so that a byte written outside its row is detected.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/pack_item.hpp"
#include "core/thread_pool.hpp"
#include "device/host/pack.hpp"
#include "support/pseudo_random.hpp"
#include "support/reference_convert.hpp"

namespace safeshuffle::testing {

using Bytes = std::vector<std::byte>;

inline constexpr std::byte canary{0xa5};

inline std::uint64_t element_bytes(DType dtype) {
  return std::max(bits(dtype), 8U) / 8;
}

/// All conversions, and types of several widths that are not converted.
inline std::vector<ConvertPair> pack_pairs() {
  std::vector<ConvertPair> pairs = convert_pairs();
  for (const DType same : {DType::U8, DType::F4, DType::BF16, DType::F32, DType::F64}) {
    pairs.push_back({same, same});
  }
  return pairs;
}

/// The shape of an item, and where it starts: at the next place in the slab and in the target with
/// the requested misalignment.
struct PackShape {
  ConvertPair types{DType::U8, DType::U8};
  std::uint64_t rows = 1;
  std::uint64_t elements = 1;                  ///< of one row
  std::uint64_t source_gap = 0;                ///< bytes between rows
  std::uint64_t destination_gap = 0;           ///< bytes between rows
  std::uint64_t source_misalignment = 0;       ///< mod 16
  std::uint64_t destination_misalignment = 0;  ///< mod 16
  PackTarget target = PackTarget::arena;
};

struct PackTargets {
  Bytes arena;
  Bytes send;
};

/// Where two targets of the same size first differ; empty if they are equal.
inline std::string difference(const Bytes& actual, const Bytes& expected) {
  const auto [left, right] = std::mismatch(actual.begin(), actual.end(), expected.begin());
  if (left == actual.end()) return "";
  return std::to_string(std::to_integer<int>(*left)) + " in place of " +
         std::to_string(std::to_integer<int>(*right)) + " at byte " +
         std::to_string(left - actual.begin());
}

inline std::string difference(const PackTargets& actual, const PackTargets& expected) {
  const std::string arena = difference(actual.arena, expected.arena);
  if (!arena.empty()) return "arena: " + arena;
  const std::string send = difference(actual.send, expected.send);
  return send.empty() ? "" : "send: " + send;
}

/// A table under construction: items lie one after the other in slab and targets.
class PackTable {
 public:
  /// Appends an item of random elements, with a gap after the previous one.
  void add(const PackShape& shape) {
    PackItem item{.rows = shape.rows,
                  .row_bytes = shape.elements * element_bytes(shape.types.from),
                  .from = shape.types.from,
                  .to = shape.types.to,
                  .target = shape.target};
    item.source_stride = item.row_bytes + shape.source_gap;
    item.destination_stride = destination_row_bytes(item) + shape.destination_gap;
    item.source = place(slab_.size(), shape.source_misalignment);
    item.destination = place(target(item).size(), shape.destination_misalignment);
    append(item);
  }

  /// Appends an item whose places are given.
  void append(const PackItem& item) {
    const std::uint64_t source_end =
        item.source + (item.rows - 1) * item.source_stride + item.row_bytes;
    const std::uint64_t destination_end =
        item.destination + item.rows * item.destination_stride + guard_bytes;
    extend_slab(std::max<std::uint64_t>(slab_.size(), source_end));
    target(item).resize(std::max<std::uint64_t>(target(item).size(), destination_end), canary);
    items_.push_back(item);
  }

  /// Appends one row of these elements.
  void add_values(PackShape shape, const std::vector<std::uint32_t>& values) {
    shape.elements = values.size();
    add(shape);
    std::byte* place = slab_.data() + items_.back().source;
    for (const std::uint32_t value : values) {
      std::memcpy(place, &value, element_bytes(shape.types.from));
      place += element_bytes(shape.types.from);
    }
  }

  const std::vector<PackItem>& items() const { return items_; }
  const Bytes& slab() const { return slab_; }

  /// The targets before packing.
  const PackTargets& blank() const { return blank_; }

  /// The targets after packing on the CPU.
  /// `source`: null for the slab.
  PackTargets packed(std::size_t threads = 1, const device::PackSource* source = nullptr) const {
    core::ThreadPool pool(threads - 1);
    PackTargets targets = blank_;
    const std::byte* slab = source == nullptr ? slab_.data() : nullptr;
    device::pack_on_host(items_, {slab, targets.arena.data(), targets.send.data(), source}, pool);
    return targets;
  }

 private:
  static constexpr std::uint64_t guard_bytes = 16;  ///< behind the last item of a target

  Bytes& target(const PackItem& item) {
    return item.target == PackTarget::arena ? blank_.arena : blank_.send;
  }

  static std::uint64_t place(std::uint64_t end, std::uint64_t misalignment) {
    return (end + 15) / 16 * 16 + 16 + misalignment;
  }

  void extend_slab(std::uint64_t bytes) {
    const Bytes more = PseudoRandom(bytes).bytes(bytes - slab_.size());
    slab_.insert(slab_.end(), more.begin(), more.end());
  }

  std::vector<PackItem> items_;
  Bytes slab_;
  PackTargets blank_;
};

inline PackTable every_misalignment() {
  PackTable table;
  for (const ConvertPair pair : pack_pairs()) {
    for (std::uint64_t source = 0; source < 16; ++source) {
      for (std::uint64_t destination = 0; destination < 16; ++destination) {
        table.add({pair, 3, 1 + (source * 5 + destination) % 37, source % 4, destination % 5,
                   source, destination,
                   destination % 2 == 0 ? PackTarget::arena : PackTarget::pack_buffer});
      }
    }
  }
  return table;
}

inline PackTable random_table(std::uint64_t seed) {
  PseudoRandom random(seed);
  const std::vector<ConvertPair> pairs = pack_pairs();
  PackTable table;
  for (int i = 0; i < 500; ++i) {
    table.add({pairs[random.below(pairs.size())], 1 + random.below(40), 1 + random.below(300),
               random.below(2) * random.below(100), random.below(2) * random.below(100),
               random.below(16), random.below(16),
               random.below(2) == 0 ? PackTarget::arena : PackTarget::pack_buffer});
  }
  return table;
}

/// Rows shorter and longer than a vector, a warp's vectors and a tile, with and without gaps.
inline PackTable row_shapes(ConvertPair types) {
  PackTable table;
  for (const unsigned elements :
       {1U, 2U, 3U, 8U, 16U, 17U, 32U, 50U, 100U, 511U, 512U, 2048U, 2049U, 40000U}) {
    const std::uint64_t rows = std::min<std::uint64_t>(70000 / elements + 1, 1000);
    table.add({.types = types, .rows = rows, .elements = elements});
    table.add({.types = types, .rows = rows, .elements = elements, .source_gap = 64});
    table.add({.types = types, .rows = rows, .elements = elements, .destination_gap = 32});
    table.add({types, rows, elements, elements * 2, 0, 1, 4, PackTarget::pack_buffer});
    table.add({types, rows, elements, 7, elements * 4, 15, 8, PackTarget::pack_buffer});
  }
  return table;
}

/// Every 16-bit pattern in order and out of order, so that NaN and numbers are adjacent; as F32,
/// with the bits that decide the rounding in the lower half.
inline PackTable every_value(ConvertPair types) {
  PackTable table;
  for (const std::uint32_t factor : {1U, 40503U}) {
    for (const std::uint32_t low : {0U, 1U, 0x0fffU, 0x1000U, 0x1001U, 0x7fffU, 0x8000U, 0xffffU}) {
      std::vector<std::uint32_t> values(1 << 16);
      for (std::uint32_t i = 0; i < values.size(); ++i) values[i] = i * factor % 65536;
      if (types.from == DType::F32) {
        for (std::uint32_t& value : values) value = value << 16 | low;
      }
      table.add_values({.types = types, .source_misalignment = low % 16}, values);
      if (types.from != DType::F32) break;
    }
  }
  return table;
}

/// Items, and rows, whose destinations adjoin at any byte.
inline PackTable adjoining_items() {
  PseudoRandom random(7);
  PackTable table;
  std::uint64_t end = 0;
  for (int i = 0; i < 300; ++i) {
    PackItem item{.source = random.below(10000), .destination = end};
    item.rows = 1 + random.below(20);
    item.row_bytes = 1 + random.below(100);
    item.source_stride = item.row_bytes + random.below(10);
    item.destination_stride = item.row_bytes;
    end += item.rows * item.row_bytes;
    table.append(item);
  }
  return table;
}

}  // namespace safeshuffle::testing
