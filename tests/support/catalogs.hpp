// Invented catalogs and placements for tests of planning.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "safeshuffle/metadata.hpp"
#include "safeshuffle/placement.hpp"

namespace safeshuffle::testing {

/// "t7", "file-3".
inline std::string numbered(std::string name, std::size_t number) {
  name += std::to_string(number);
  return name;
}

/// The name of a tensor of a model with layers, in the wildest order: no other number has the same.
inline std::string name_in_model(std::size_t number) {
  const std::string name = numbered("t", number);
  if (number % 7 == 0) return "embed_tokens." + name;
  if (number % 7 == 1) return "norm." + name;
  return numbered("layers.", number * 11 % 5) + "." + name;
}

/// A tensor of an invented file.
struct Made {
  std::string name;
  DType dtype;
  Shape shape;
};

/// A catalog of files with these tensors, one after the other, behind headers of odd lengths.
/// `paths`: of the files; invented if empty.
inline Catalog make_catalog(const std::vector<std::vector<Made>>& files,
                            Catalog::Names names = Catalog::Names::unique,
                            const std::vector<std::string>& paths = {}) {
  std::vector<FileInfo> infos;
  std::vector<TensorInfo> tensors;
  for (std::uint32_t file = 0; file < files.size(); ++file) {
    FileInfo info;
    info.path = paths.empty() ? numbered("file-", file) : paths[file];
    info.data_start = 8 + 101 + file;
    info.size = info.data_start;
    for (const Made& made : files[file]) {
      std::uint64_t bit_count = bits(made.dtype);
      for (const std::uint64_t extent : made.shape) bit_count *= extent;
      tensors.push_back({made.name, made.dtype, made.shape, file, info.size, bit_count / 8});
      info.size += bit_count / 8;
    }
    infos.push_back(info);
  }
  return Catalog(std::move(infos), std::move(tensors), names);
}

/// A split into `units` equal units.
inline Placement cut(std::uint32_t axis, std::uint64_t units, bool uneven = false,
                     bool replicate = false) {
  Placement placement;
  placement.kind = Placement::Kind::sharded;
  placement.split.axis = axis;
  placement.split.sharing = {units, uneven, replicate};
  return placement;
}

/// A split of fused parts of these lengths, each in units of one element.
inline Placement fused(std::uint32_t axis, const std::vector<std::uint64_t>& lengths) {
  Placement placement = cut(axis, 1, false, true);
  for (const std::uint64_t length : lengths) {
    placement.split.parts.push_back({length, {length, true, false}});
  }
  return placement;
}

inline Placement whole(Placement::Kind kind = Placement::Kind::replicated, std::uint32_t rank = 0) {
  Placement placement;
  placement.kind = kind;
  placement.rank = rank;
  return placement;
}

/// The first part is split, as by `fused`; each rank has all of the others, as of shared KV heads.
inline Placement sharing_parts(std::uint32_t axis, const std::vector<std::uint64_t>& lengths) {
  Placement placement = fused(axis, lengths);
  for (std::size_t i = 1; i < lengths.size(); ++i) {
    placement.split.parts[i].sharing = {1, false, true};
  }
  return placement;
}

/// A random catalog with placements that are valid in a world of any size up to 8.
struct RandomModel {
  Catalog catalog;
  std::vector<Placement> placements;
};

inline RandomModel random_model(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  static constexpr DType dtypes[] = {DType::BOOL, DType::U8,  DType::F16,    DType::BF16,
                                     DType::F32,  DType::I64, DType::F8_E4M3};
  std::vector<std::vector<Made>> files(1 + below(9));
  std::vector<Placement> placements;
  for (auto& file : files) {
    for (std::uint32_t i = below(12); i > 0; --i) {
      Made made{name_in_model(placements.size()), dtypes[below(7)], {}};
      for (std::uint32_t dims = below(4); dims > 0; --dims) made.shape.push_back(below(40));
      Placement placement = whole();
      const auto axis =
          made.shape.empty() ? 0 : below(static_cast<std::uint32_t>(made.shape.size()));
      switch (made.shape.empty() ? 3 + below(3) : below(6)) {
        case 0:
          placement = cut(axis, made.shape[axis], true);
          if (placements.size() % 2 == 0 &&
              made.shape[axis] != 0) {  // as scales, whose blocks ranks share
            const std::uint64_t extent = made.shape[axis] * 5 - placements.size() % 5;
            placement.split.sharing.units = extent;
            placement.split.packing = {extent, 5, 1, true};
          }
          break;
        case 1:  // as KV heads: shared by several ranks if there are more ranks
          placement = cut(axis, made.shape[axis] % 2 == 0 ? 2 : made.shape[axis], true, true);
          break;
        case 2: {
          const std::uint64_t extent = made.shape[axis];
          const std::vector<std::uint64_t> parts{extent / 2, extent / 3,
                                                 extent - extent / 2 - extent / 3};
          placement = below(2) == 0 ? fused(axis, parts) : sharing_parts(axis, parts);
          break;
        }
        case 3:
          placement = whole(Placement::Kind::dropped);
          break;
        case 4:
          placement = whole(Placement::Kind::single, 0);
          break;
        default:
          break;
      }
      file.push_back(made);
      placements.push_back(placement);
    }
  }
  return {make_catalog(files), placements};
}

}  // namespace safeshuffle::testing
