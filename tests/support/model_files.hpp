// Invented models as files, and what a rank must hold of them, by definition.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "safeshuffle/loader.hpp"

#include "pipeline/file_writer.hpp"
#include "support/catalogs.hpp"
#include "support/pseudo_random.hpp"
#include "support/reference_convert.hpp"

namespace safeshuffle::testing {

/// "DIRECTORY/model-00003.safetensors".
inline std::string model_file(const std::string& directory, std::size_t number) {
  const std::string digits = std::to_string(number);
  return directory + "/model-" + std::string(5 - digits.size(), '0') + digits + ".safetensors";
}

/// One file of these tensors with random bits, its data at an odd offset.
inline void write_model_file(const std::string& path, std::span<const TensorInfo> tensors,
                             PseudoRandom& random) {
  std::vector<format::TensorSpec> specs;
  for (const TensorInfo& tensor : tensors)
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  format::HeaderLayout layout = format::layout_header(specs, {}, 1);
  if (layout.bytes.size() % 2 == 0) layout = format::layout_header(specs, {{"odd", ""}}, 1);
  if (layout.bytes.size() % 2 == 0) layout = format::layout_header(specs, {{"odd!", ""}}, 1);
  pipeline::FileWriter writer(path, std::move(layout));
  for (std::size_t i = 0; i < tensors.size(); ++i)
    writer.write(i, 0, random.bytes(tensors[i].bytes));
  writer.commit();
}

/// The files of an invented model; the directory must exist.
inline void write_model(const std::string& directory, const Catalog& catalog, std::uint64_t seed) {
  PseudoRandom random(seed);
  for (std::size_t i = 0; i < catalog.files().size(); ++i) {
    write_model_file(model_file(directory, i), catalog.tensors_of(catalog.files()[i]), random);
  }
}

/// The placements of an invented model in the order of its files' catalog, in which empty tensors
/// may be at another position.
inline std::vector<Placement> placements_for(const Catalog& stored,
                                             const testing::RandomModel& model) {
  std::vector<Placement> placements;
  for (const TensorInfo& tensor : stored.tensors()) {
    const TensorInfo* made = model.catalog.find(tensor.name);
    placements.push_back(
        model.placements.at(static_cast<std::size_t>(made - model.catalog.tensors().data())));
  }
  return placements;
}

inline std::vector<std::byte> stored_bytes(const Catalog& catalog, const TensorInfo& tensor) {
  std::vector<std::byte> bytes(tensor.bytes);
  std::ifstream file(catalog.files()[tensor.file].path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(tensor.file_offset));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

/// Element by element: those whose index along the cut axis is in one of the rank's intervals.
inline std::vector<std::byte> slice(const std::vector<std::byte>& bytes, const TensorInfo& tensor,
                                    const Placement& placement, std::uint32_t rank,
                                    std::uint32_t world) {
  if (placement.kind != Placement::Kind::sharded || bytes.empty()) return bytes;
  const std::uint64_t extent = tensor.shape[placement.split.axis];
  std::uint64_t inner = bits(tensor.dtype) / 8;
  for (std::size_t i = placement.split.axis + 1; i < tensor.shape.size(); ++i) {
    inner *= tensor.shape[i];
  }
  std::vector<Interval> intervals;
  append_intervals(placement.split, extent, rank, world, intervals);
  std::vector<std::byte> kept;
  for (std::uint64_t i = 0; i < bytes.size(); ++i) {
    const std::uint64_t index = i / inner % extent;
    const bool mine = std::any_of(intervals.begin(), intervals.end(), [&](const Interval& k) {
      return index >= k.begin && index - k.begin < k.length;
    });
    if (mine) kept.push_back(bytes[i]);
  }
  return kept;
}

inline std::vector<std::byte> convert(const std::vector<std::byte>& bytes, DType from, DType to) {
  if (from == to) return bytes;
  std::vector<std::byte> result;
  for (std::size_t i = 0; i < bytes.size(); i += bits(from) / 8) {
    std::uint32_t value = 0;
    std::memcpy(&value, &bytes[i], bits(from) / 8);
    const std::uint32_t converted = reference_convert(from, to, value);
    const auto* first = reinterpret_cast<const std::byte*>(&converted);
    result.insert(result.end(), first, first + bits(to) / 8);
  }
  return result;
}

inline std::vector<std::byte> loaded_bytes(const TensorSet& loaded, const TensorView& view) {
  std::vector<std::byte> bytes(view.bytes);
  loaded.copy_to_host(view, bytes);
  return bytes;
}

/// Whether a rank holds exactly the tensors it must, with the right types, shapes and bytes.
inline bool is_right(const TensorSet& loaded, std::uint32_t rank) {
  const Plan& plan = loaded.plan();
  std::size_t held = 0;
  for (std::size_t i = 0; i < plan.catalog().tensors().size(); ++i) {
    const TensorInfo& tensor = plan.catalog().tensors()[i];
    const Placement& placement = plan.placements()[i];
    const TensorView* view = loaded.find(tensor.name);
    if (holds(placement, rank) != (view != nullptr)) return false;
    if (view == nullptr) continue;
    ++held;
    const auto shape = shard_shape(tensor, placement, rank, plan.world());
    const auto expected =
        convert(slice(stored_bytes(plan.catalog(), tensor), tensor, placement, rank, plan.world()),
                tensor.dtype, view->dtype);
    if (!std::equal(shape.begin(), shape.end(), view->shape.begin(), view->shape.end()))
      return false;
    if (loaded_bytes(loaded, *view) != expected) return false;
  }
  return held == loaded.size();
}

}  // namespace safeshuffle::testing
