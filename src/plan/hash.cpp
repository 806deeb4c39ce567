#include "plan/hash.hpp"

#include <array>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace safeshuffle::plan {
namespace {

// Feeds values one by one, so that struct padding never counts; through a buffer, which is several
// times faster.
class Hasher {
 public:
  Hasher() { XXH3_64bits_reset(&state_); }

  template <class T>
  requires std::is_integral_v<T> || std::is_enum_v<T>
  void add(T value) { update(&value, sizeof value); }

  void add(std::string_view text) {
    add(text.size());
    update(text.data(), text.size());
  }

  void add(const std::vector<std::uint64_t>& values) {
    add(values.size());
    update(values.data(), values.size() * sizeof(std::uint64_t));
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

void add(Hasher& hasher, const TensorInfo& tensor) {
  hasher.add(std::string_view(tensor.name));
  hasher.add(tensor.dtype);
  hasher.add(tensor.shape);
  hasher.add(tensor.file);
  hasher.add(tensor.file_offset);
  hasher.add(tensor.bytes);
}

void add(Hasher& hasher, const Sharing& sharing) {
  hasher.add(sharing.units);
  hasher.add(sharing.uneven);
  hasher.add(sharing.replicate);
}

void add(Hasher& hasher, const Placement& placement) {
  hasher.add(placement.kind);
  hasher.add(placement.rank);
  hasher.add(placement.split.axis);
  add(hasher, placement.split.sharing);
  hasher.add(placement.split.parts.size());
  for (const Part& part : placement.split.parts) {
    hasher.add(part.length);
    add(hasher, part.sharing);
  }
  const Packing& packing = placement.split.packing;
  hasher.add(packing.extent);
  hasher.add(packing.values);
  hasher.add(packing.stored);
  hasher.add(packing.covering);
}

void add(Hasher& hasher, const Composition& composition) {
  hasher.add(std::string_view(composition.name));
  hasher.add(composition.aliases.size());
  for (const std::string& alias : composition.aliases) hasher.add(std::string_view(alias));
  hasher.add(composition.shape);
  hasher.add(composition.axis);
  hasher.add(composition.fills.size());
  for (const Fill& fill : composition.fills) {
    hasher.add(fill.tensor);
    hasher.add(fill.source_begin);
    hasher.add(fill.target_begin);
    hasher.add(fill.length);
  }
}

void add(Hasher& hasher, const SavedShard& shard) {
  hasher.add(shard.shape);
  hasher.add(shard.axis);
  hasher.add(shard.intervals.size());
  for (const Interval& interval : shard.intervals) {
    hasher.add(interval.begin);
    hasher.add(interval.length);
  }
}

void add(Hasher& hasher, const Target& target) {
  hasher.add(target.tensor);
  add(hasher, target.placement);
  hasher.add(target.composition != nullptr);
  if (target.composition) add(hasher, *target.composition);
  hasher.add(target.saved_shard != nullptr);
  if (target.saved_shard) add(hasher, *target.saved_shard);
}

void add(Hasher& hasher, const std::vector<Read>& reads) {
  hasher.add(reads.size());
  for (const Read& read : reads) {
    hasher.add(read.tensor);
    hasher.add(read.first_segment);
    hasher.add(read.segments);
    hasher.add(read.wave);
  }
}

}  // namespace

std::uint64_t hash_of(const Schedule& schedule) {
  Hasher hasher;
  hasher.add(schedule.world);
  hasher.add(schedule.replicas);
  hasher.add(schedule.waves);
  hasher.add(schedule.exchanged_waves);
  hasher.add(schedule.window);
  for (const FileInfo& file : schedule.catalog.files()) hasher.add(file.size);
  for (const TensorInfo& tensor : schedule.catalog.tensors()) add(hasher, tensor);
  for (const Target& target : schedule.targets) add(hasher, target);
  for (const DType dtype : schedule.dtypes) hasher.add(dtype);
  for (const auto& reads : schedule.reads) add(hasher, reads);
  add(hasher, schedule.slices);
  for (const std::uint32_t tensor : schedule.arena_order) hasher.add(tensor);
  return hasher.digest();
}

}  // namespace safeshuffle::plan
