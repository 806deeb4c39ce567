#include "pipeline/readiness.hpp"

namespace safeshuffle::pipeline {

Readiness::Readiness(const Plan& plan, std::uint32_t rank, std::span<const TensorView> tensors,
                     const std::function<void(const Ready&)>& tell)
    : completion_(plan.schedule(), rank), tell_(tell) {
  if (!tell_) return;
  for (const TensorView& view : tensors) views_.emplace(view.index, &view);
}

void Readiness::is_here(std::uint32_t wave) {
  if (!tell_) return;
  for (const plan::CompleteTarget& complete : completion_.targets(wave)) {
    const auto [first, end] = views_.equal_range(complete.target);
    for (auto view = first; view != end; ++view) tell_({Ready::What::tensor, view->second});
  }
  for (const plan::CompleteLayer& complete : completion_.layers(wave)) {
    tell_({Ready::What::layer, nullptr, complete.layer});
  }
}

void Readiness::is_everywhere(std::uint32_t end) {
  if (!tell_) return;
  for (; everywhere_ < end; ++everywhere_) {
    for (const plan::CompleteLayer& complete : completion_.layers(everywhere_)) {
      tell_({Ready::What::layer_everywhere, nullptr, complete.layer});
    }
  }
}

}  // namespace safeshuffle::pipeline
