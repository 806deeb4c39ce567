#include "plan/targets.hpp"

#include <algorithm>
#include <string>
#include <tuple>

#include "safeshuffle/error.hpp"

namespace safeshuffle::plan {
namespace {

class TargetCheck {
 public:
  TargetCheck(const Catalog& catalog, const Target& target, std::uint32_t world)
      : tensors_(catalog.tensors()), target_(target), world_(world) {}

  void run() {
    if (target_.tensor >= tensors_.size()) fail("it is filled from an unknown tensor");
    if (target_.composition) check_composition(*target_.composition);
    const Placement& placement = target_.placement;
    if (placement.kind == Placement::Kind::single && placement.rank >= world_) {
      fail("it is placed on rank " + std::to_string(placement.rank) + ", but the last rank is " +
           std::to_string(world_ - 1));
    }
  }

 private:
  [[noreturn]] void fail(std::string cause) const {
    std::string name = target_.composition ? target_.composition->name : std::string();
    if (name.empty() && target_.tensor < tensors_.size()) name = tensors_[target_.tensor].name;
    throw PlanError(ErrorRecord{.tensor = std::move(name), .cause = std::move(cause)});
  }

  void check_composition(const Composition& composition) const {
    if (composition.axis >= composition.shape.size()) fail("it has no such axis to compose along");
    std::uint64_t end = 0;
    for (const Fill& fill : composition.fills) {
      if (fill.target_begin != end) fail("its parts leave a gap, or overlap");
      if (fill.length == 0) fail("one of its parts is empty");
      end += fill.length;
      if (fill.tensor != Fill::zeros) check_fill(composition, fill);
    }
    if (end != composition.shape[composition.axis]) fail("its parts are not all of it");
    if (std::ranges::none_of(composition.fills,
                             [&](const Fill& fill) { return fill.tensor == target_.tensor; })) {
      fail("it is not filled from the tensor that it is said to be");
    }
  }

  void check_fill(const Composition& composition, const Fill& fill) const {
    if (fill.tensor >= tensors_.size()) fail("it is filled from an unknown tensor");
    const TensorInfo& tensor = tensors_[fill.tensor];
    if (tensor.dtype != tensors_[target_.tensor].dtype) {
      fail("'" + tensor.name + "' has another type than '" + tensors_[target_.tensor].name + "'");
    }
    Shape shape = tensor.shape;
    if (shape.size() != composition.shape.size()) {
      fail("'" + tensor.name + "' has another number of dimensions");
    }
    const std::uint64_t extent = shape[composition.axis];
    if (fill.length > extent || fill.source_begin > extent - fill.length) {
      fail("it needs more of '" + tensor.name + "' than there is");
    }
    shape[composition.axis] = composition.shape[composition.axis];
    if (shape != composition.shape) fail("'" + tensor.name + "' has another shape");
  }

  std::span<const TensorInfo> tensors_;
  const Target& target_;
  std::uint32_t world_;
};

}  // namespace

void check_targets(const Catalog& catalog, std::span<const Target> targets, std::uint32_t world) {
  for (const Target& target : targets) TargetCheck(catalog, target, world).run();
}

std::vector<Use> uses_of_targets(std::span<const Target> targets) {
  std::vector<Use> uses;
  uses.reserve(targets.size());
  for (std::uint32_t i = 0; i < targets.size(); ++i) {
    const Target& target = targets[i];
    if (target.placement.kind == Placement::Kind::dropped) continue;
    if (!target.composition) {
      uses.push_back({target.tensor, i, 0});
      continue;
    }
    const std::vector<Fill>& fills = target.composition->fills;
    for (std::uint32_t fill = 0; fill < fills.size(); ++fill) {
      if (fills[fill].tensor != Fill::zeros) uses.push_back({fills[fill].tensor, i, fill});
    }
  }
  const auto key = [](const Use& use) { return std::tuple(use.tensor, use.target, use.fill); };
  std::ranges::sort(uses, {}, key);
  return uses;
}

std::vector<std::uint32_t> first_uses(std::span<const Use> uses, std::size_t tensors) {
  std::vector<std::uint32_t> first(tensors + 1);
  for (const Use& use : uses) ++first[use.tensor + 1];
  for (std::size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
  return first;
}

}  // namespace safeshuffle::plan
