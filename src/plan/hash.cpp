#include "plan/hash.hpp"

#include <array>
#include <cstring>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/wire.hpp"

namespace safeshuffle {

auto fields(core::As<TensorInfo> auto& tensor) {
  return std::tie(tensor.name, tensor.dtype, tensor.shape, tensor.file, tensor.file_offset,
                  tensor.bytes);
}

auto fields(core::As<Sharing> auto& sharing) {
  return std::tie(sharing.units, sharing.uneven, sharing.replicate);
}

auto fields(core::As<Part> auto& part) {
  return std::tie(part.length, part.sharing);
}

auto fields(core::As<Packing> auto& packing) {
  return std::tie(packing.extent, packing.values, packing.stored, packing.covering);
}

auto fields(core::As<Placement> auto& placement) {
  const Split& split = placement.split;
  return std::tie(placement.kind, placement.rank, split.axis, split.sharing, split.parts,
                  split.packing);
}

auto fields(core::As<Fill> auto& fill) {
  return std::tie(fill.tensor, fill.source_begin, fill.target_begin, fill.length);
}

auto fields(core::As<Composition> auto& composition) {
  return std::tie(composition.name, composition.aliases, composition.shape, composition.axis,
                  composition.fills);
}

auto fields(core::As<Interval> auto& interval) {
  return std::tie(interval.begin, interval.length);
}

auto fields(core::As<SavedShard> auto& shard) {
  return std::tie(shard.shape, shard.axis, shard.intervals);
}

auto fields(core::As<Target> auto& target) {
  return std::tie(target.tensor, target.placement, target.composition, target.saved_shard);
}

}  // namespace safeshuffle

namespace safeshuffle::plan {

auto fields(core::As<Read> auto& read) {
  return std::tie(read.tensor, read.first_segment, read.segments, read.wave);
}

namespace {

// Feeds values one by one, so that struct padding never counts; through a buffer, which is several
// times faster.
class Hasher {
 public:
  Hasher() { XXH3_64bits_reset(&state_); }

  void put(std::uint64_t value) { update(&value, sizeof value); }

  void put(std::string_view text) {
    put(std::uint64_t{text.size()});
    update(text.data(), text.size());
  }

  std::uint64_t digest() {
    flush();
    return XXH3_64bits_digest(&state_);
  }

 private:
  void update(const void* data, std::size_t bytes) {
    if (bytes > buffer_.size() - filled_) flush();
    if (bytes > buffer_.size()) {
      XXH3_64bits_update(&state_, data, bytes);
      return;
    }
    if (bytes != 0) std::memcpy(buffer_.data() + filled_, data, bytes);
    filled_ += bytes;
  }

  void flush() { XXH3_64bits_update(&state_, buffer_.data(), std::exchange(filled_, 0)); }

  XXH3_state_t state_;
  std::array<char, 4096> buffer_;
  std::size_t filled_ = 0;
};

void put_parts(Hasher& hasher, const RankParts& parts) {
  hasher.put(parts.row_bytes);
  for (const KeptColumns& kept : parts.columns) {
    hasher.put(std::uint64_t{kept.columns.size()});
    for (const Columns& interval : kept.columns) {
      hasher.put(interval.begin);
      hasher.put(interval.end);
    }
  }
}

// What targets share is put once.
void put_parts(Hasher& hasher, const std::vector<Target>& targets) {
  std::unordered_map<const RankParts*, std::uint64_t> known;
  for (const Target& target : targets) {
    const auto [at, is_new] = known.try_emplace(target.parts.get(), known.size());
    hasher.put(at->second);
    if (is_new) put_parts(hasher, *target.parts);
  }
}

}  // namespace

std::uint64_t hash_of(const Schedule& schedule) {
  Hasher hasher;
  const auto add = [&](const auto&... values) { (core::put(hasher, values), ...); };
  add(schedule.order, schedule.world, schedule.replicas, schedule.waves, schedule.exchanged_waves,
      schedule.window);
  for (const FileInfo& file : schedule.catalog.files()) add(file.size);
  add(schedule.catalog.tensors(), schedule.targets, schedule.dtypes, schedule.reads,
      schedule.slices, schedule.arena_order);
  if (fills_lent_memory(schedule)) put_parts(hasher, schedule.targets);
  return hasher.digest();
}

}  // namespace safeshuffle::plan
