// Invented targets: composed of several stored tensors, of parts of them, of zeros.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "safeshuffle/metadata.hpp"
#include "safeshuffle/target.hpp"

#include "support/catalogs.hpp"

namespace safeshuffle::testing {

struct RandomTargets {
  Catalog catalog;
  std::vector<Target> targets;
};

/// Makes a model whose targets are possible in a world of any size up to 8: stored tensors as they
/// are; joined along any axis and split along any other; taken apart; padded; and left out.
class RandomTargetsMaker {
 public:
  explicit RandomTargetsMaker(std::uint32_t seed) : random_(seed), files_(1 + below(6)) {}

  RandomTargets make() {
    for (std::uint32_t i = 1 + below(6); i > 0; --i) {
      switch (below(4)) {
        case 0:
          add_stored();
          break;
        case 1:
          add_parted();
          break;
        default:
          add_joined();
          break;
      }
    }
    RandomTargets made{make_catalog(files_), {}};
    std::map<std::string, std::uint32_t> indices;
    for (std::uint32_t i = 0; i < made.catalog.tensors().size(); ++i) {
      indices[made.catalog.tensors()[i].name] = i;
    }
    for (const Draft& draft : drafts_) made.targets.push_back(finish(draft, indices));
    std::shuffle(made.targets.begin(), made.targets.end(), random_);
    return made;
  }

 private:
  // A target, with names of tensors instead of indices; empty for zeros.
  struct Draft {
    Composition composition;
    std::vector<std::string> tensors;
    Placement placement;
  };

  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }

  DType dtype() {
    static constexpr DType dtypes[] = {DType::U8, DType::BF16, DType::F32};
    return dtypes[below(3)];
  }

  Shape shape() {
    Shape shape(1 + below(3));
    for (std::uint64_t& extent : shape) extent = 1 + below(20);
    return shape;
  }

  std::uint32_t axis_of(const Shape& shape) {
    return below(static_cast<std::uint32_t>(shape.size()));
  }

  std::string store(DType dtype, const Shape& shape) {
    auto& file = files_[below(static_cast<std::uint32_t>(files_.size()))];
    const std::string name = name_in_model(stored_++);
    file.insert(file.begin() + below(static_cast<std::uint32_t>(file.size()) + 1),
                {name, dtype, shape});
    return name;
  }

  Placement split_along(std::uint32_t axis, std::uint64_t extent) {
    const std::vector<std::uint64_t> parts{extent / 2, extent / 3,
                                           extent - extent / 2 - extent / 3};
    switch (below(4)) {
      case 0:
        return cut(axis, extent % 2 == 0 ? 2 : extent, true, true);
      case 1:
        return fused(axis, parts);
      case 2:
        return sharing_parts(axis, parts);
      default:
        return cut(axis, extent, true);
    }
  }

  Placement unsplit() {
    switch (below(4)) {
      case 0:
        return whole(Placement::Kind::single, 0);
      case 1:
        return whole(Placement::Kind::dropped);
      default:
        return whole();
    }
  }

  void add_stored() {
    const Shape extents = shape();
    const std::uint32_t axis = axis_of(extents);
    drafts_.push_back({{},
                       {store(dtype(), extents)},
                       below(2) == 0 ? unsplit() : split_along(axis, extents[axis])});
  }

  // Of stored tensors that are as long as their parts, or, if split along the same axis, longer.
  void add_joined() {
    const DType type = dtype();
    Draft draft;
    draft.composition.shape = shape();
    const Shape& extents = draft.composition.shape;
    draft.composition.axis = axis_of(extents);
    const std::uint32_t axis = draft.composition.axis;
    const std::uint32_t split = axis_of(extents);
    draft.placement = below(4) == 0 ? unsplit() : split_along(split, extents[split]);
    const bool partly = draft.placement.kind != Placement::Kind::sharded || split == axis;
    for (std::uint64_t begin = 0; begin < extents[axis];) {
      const std::uint64_t length = 1 + below(static_cast<std::uint32_t>(extents[axis] - begin));
      Fill fill{0, 0, begin, length};
      begin += length;
      if (begin == extents[axis] && below(3) == 0 && !draft.tensors.empty()) {
        draft.tensors.emplace_back();
      } else {
        Shape stored = extents;
        stored[axis] = length;
        if (partly && below(3) == 0) {
          fill.source_begin = below(3);
          stored[axis] += fill.source_begin + below(3);
        }
        draft.tensors.push_back(store(type, stored));
      }
      draft.composition.fills.push_back(fill);
    }
    drafts_.push_back(std::move(draft));
  }

  // Several targets, each of an interval of one stored tensor; they may overlap, and leave some.
  void add_parted() {
    const DType type = dtype();
    const Shape stored = shape();
    const std::uint32_t axis = axis_of(stored);
    const std::string name = store(type, stored);
    for (std::uint32_t i = 1 + below(3); i > 0; --i) {
      Draft draft;
      const std::uint64_t begin = below(static_cast<std::uint32_t>(stored[axis]));
      const std::uint64_t length = 1 + below(static_cast<std::uint32_t>(stored[axis] - begin));
      draft.composition.shape = stored;
      draft.composition.shape[axis] = length;
      draft.composition.axis = axis;
      draft.composition.fills = {{0, begin, 0, length}};
      draft.tensors = {name};
      draft.placement = below(3) == 0 ? unsplit() : split_along(axis, length);
      drafts_.push_back(std::move(draft));
    }
  }

  Target finish(const Draft& draft, const std::map<std::string, std::uint32_t>& indices) {
    Target target{indices.at(draft.tensors.front()), draft.placement, nullptr};
    if (draft.composition.fills.empty()) return target;
    Composition composition = draft.composition;
    composition.name = numbered("target", composed_++);
    for (std::size_t i = 0; i < draft.tensors.size(); ++i) {
      const std::string& name = draft.tensors[i];
      composition.fills[i].tensor = name.empty() ? Fill::zeros : indices.at(name);
    }
    target.composition = std::make_shared<const Composition>(std::move(composition));
    return target;
  }

  std::mt19937 random_;
  std::vector<std::vector<Made>> files_;
  std::size_t stored_ = 0;
  std::size_t composed_ = 0;
  std::vector<Draft> drafts_;
};

inline RandomTargets random_targets(std::uint32_t seed) {
  return RandomTargetsMaker(seed).make();
}

}  // namespace safeshuffle::testing
