// Tells the caller what is ready while a load is in progress.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "safeshuffle/options.hpp"
#include "safeshuffle/plan.hpp"
#include "safeshuffle/tensor.hpp"

#include "pipeline/tensor_state.hpp"
#include "plan/completion.hpp"

namespace safeshuffle::pipeline {

/// Of one load of one rank. Used by the loading thread.
class Readiness {
 public:
  /// `tensors`: what the load will return; null: no tensors are told. `plan` and `tell` must
  /// outlive it. Without `tell`, it only counts.
  Readiness(const Plan& plan, std::uint32_t rank, std::shared_ptr<const TensorSet::State> tensors,
            const std::function<void(const Ready&)>& tell);

  /// A wave was finished, so many seconds after the load began.
  void note(std::uint32_t wave, double seconds);

  /// When the first wave was finished that completes a tensor with bytes, or a layer.
  double first_tensor_seconds() const noexcept { return first_tensor_seconds_; }
  double first_layer_seconds() const noexcept { return first_layer_seconds_; }

  bool tells() const noexcept { return static_cast<bool>(tell_); }

  /// This rank has the data of a wave, and of those before. Throws what the caller's function does.
  void is_here(std::uint32_t wave);

  /// All ranks have the data of all waves before `end`.
  void is_everywhere(std::uint32_t end);

 private:
  void tell_layer(Ready::What what, std::uint64_t layer) const;

  const plan::Completion completion_;
  const std::uint32_t first_complete_;  // wave
  const std::function<void(const Ready&)>& tell_;
  const std::shared_ptr<const TensorSet::State> tensors_;
  std::multimap<std::uint32_t, const TensorView*> views_;  // by target
  std::uint32_t everywhere_ = 0;                           // waves
  double first_tensor_seconds_ = 0;
  double first_layer_seconds_ = 0;
};

}  // namespace safeshuffle::pipeline
