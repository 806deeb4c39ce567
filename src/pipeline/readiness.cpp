#include "pipeline/readiness.hpp"

#include <utility>

#include "plan/waves.hpp"

namespace safeshuffle::pipeline {

Readiness::Readiness(const Plan& plan, std::uint32_t rank,
                     std::shared_ptr<const TensorSet::State> tensors,
                     const std::function<void(const Ready&)>& tell)
    : completion_(plan.schedule(), rank),
      first_complete_(plan::first_complete_wave(plan.schedule())),
      tell_(tell),
      tensors_(std::move(tensors)) {
  if (!tell_ || !tensors_) return;
  for (const TensorView& view : tensors_->views) views_.emplace(view.index, &view);
}

void Readiness::note(std::uint32_t wave, double seconds) {
  if (wave == first_complete_) first_tensor_seconds_ = seconds;
  if (first_layer_seconds_ == 0 && !completion_.layers(wave).empty()) {
    first_layer_seconds_ = seconds;
  }
}

void Readiness::is_here(std::uint32_t wave) {
  if (!tell_) return;
  for (const plan::CompleteTarget& complete : completion_.targets(wave)) {
    const auto [first, end] = views_.equal_range(complete.target);
    for (auto view = first; view != end; ++view) {
      tell_({.what = Ready::What::tensor, .tensor = view->second, .owner = tensors_});
    }
  }
  for (const plan::CompleteLayer& complete : completion_.layers(wave)) {
    tell_layer(Ready::What::layer, complete.layer);
  }
}

void Readiness::is_everywhere(std::uint32_t end) {
  if (!tell_) return;
  for (; everywhere_ < end; ++everywhere_) {
    for (const plan::CompleteLayer& complete : completion_.layers(everywhere_)) {
      tell_layer(Ready::What::layer_everywhere, complete.layer);
    }
  }
}

void Readiness::tell_layer(Ready::What what, std::uint64_t layer) const {
  tell_({.what = what, .layer = layer, .owner = tensors_});
}

}  // namespace safeshuffle::pipeline
