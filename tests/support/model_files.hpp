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

#include "output/file_writer.hpp"
#include "support/catalogs.hpp"
#include "support/naive_target.hpp"
#include "support/pseudo_random.hpp"
#include "support/random_targets.hpp"
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
  output::FileWriter writer(path, std::move(layout));
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
  if (model.placements.empty()) return placements;  // it has targets instead
  for (const TensorInfo& tensor : stored.tensors()) {
    const TensorInfo* made = model.catalog.find(tensor.name);
    placements.push_back(
        model.placements.at(static_cast<std::size_t>(made - model.catalog.tensors().data())));
  }
  return placements;
}

/// The targets of an invented model, likewise.
inline std::vector<Target> targets_for(const Catalog& stored, const RandomTargets& model) {
  const auto index = [&](std::uint32_t tensor) {
    const TensorInfo* found = stored.find(model.catalog.tensors()[tensor].name);
    return static_cast<std::uint32_t>(found - stored.tensors().data());
  };
  std::vector<Target> targets = model.targets;
  for (Target& target : targets) {
    target.tensor = index(target.tensor);
    if (!target.composition) continue;
    Composition composition = *target.composition;
    for (Fill& fill : composition.fills) {
      if (fill.tensor != Fill::zeros) fill.tensor = index(fill.tensor);
    }
    target.composition = std::make_shared<const Composition>(std::move(composition));
  }
  return targets;
}

inline std::vector<std::byte> stored_bytes(const Catalog& catalog, const TensorInfo& tensor) {
  std::vector<std::byte> bytes(tensor.bytes);
  std::ifstream file(catalog.files()[tensor.file].path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(tensor.file_offset));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
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

/// Whether a rank holds exactly the targets it must, with the right types, shapes and bytes.
inline bool is_right(const TensorSet& loaded, std::uint32_t rank) {
  const Plan& plan = loaded.plan();
  const Catalog& catalog = plan.catalog();
  const std::uint32_t ranks = plan.world() / plan.replicas();
  const std::uint32_t shard = rank % ranks;
  std::size_t held = 0;
  for (const Target& target : plan.targets()) {
    const TensorView* view = loaded.find(name_of(target, catalog));
    if (holds(target.placement, shard) != (view != nullptr)) return false;
    if (view == nullptr) continue;
    ++held;
    const Shape& shape = shape_of(target, catalog);
    const DType dtype = catalog.tensors()[target.tensor].dtype;
    const std::vector<std::byte> whole = whole_target(catalog, target, [&](std::uint32_t tensor) {
      return stored_bytes(catalog, catalog.tensors()[tensor]);
    });
    const auto expected =
        convert(slice(whole, shape, dtype, target.placement, shard, ranks), dtype, view->dtype);
    if (!std::ranges::equal(shard_shape(shape, target.placement, shard, ranks), view->shape))
      return false;
    if (loaded_bytes(loaded, *view) != expected) return false;
  }
  return held == loaded.size();
}

}  // namespace safeshuffle::testing
