#include "pipeline/sub_catalog.hpp"

#include <iterator>
#include <memory>
#include <utility>
#include <vector>

namespace safeshuffle::pipeline {

Catalog only(const Catalog& catalog, const std::set<std::uint32_t>& chosen) {
  std::vector<TensorInfo> tensors;
  for (const std::uint32_t tensor : chosen) tensors.push_back(catalog.tensors()[tensor]);
  return {{catalog.files().begin(), catalog.files().end()},
          std::move(tensors),
          Catalog::Names::by_file};
}

std::set<std::uint32_t> tensors_of(const Target& target) {
  if (!target.composition) return {target.tensor};
  std::set<std::uint32_t> tensors;
  for (const Fill& fill : target.composition->fills) {
    if (fill.tensor != Fill::zeros) tensors.insert(fill.tensor);
  }
  return tensors;
}

std::set<std::uint32_t> tensors_of(const std::vector<Target>& targets) {
  std::set<std::uint32_t> tensors;
  for (const Target& target : targets) tensors.merge(tensors_of(target));
  return tensors;
}

Target renumbered(Target target, const std::set<std::uint32_t>& chosen) {
  const auto number = [&](std::uint32_t tensor) {
    return static_cast<std::uint32_t>(std::distance(chosen.begin(), chosen.find(tensor)));
  };
  target.tensor = number(target.tensor);
  if (!target.composition) return target;
  auto composition = std::make_shared<Composition>(*target.composition);
  for (Fill& fill : composition->fills) {
    if (fill.tensor != Fill::zeros) fill.tensor = number(fill.tensor);
  }
  target.composition = std::move(composition);
  return target;
}

}  // namespace safeshuffle::pipeline
