#include "pipeline/load_progress.hpp"

#include <chrono>

#include "plan/summary.hpp"
#include "plan/waves.hpp"

namespace safeshuffle::pipeline {
namespace {

constexpr std::chrono::milliseconds interval{100};

}  // namespace

LoadProgress::LoadProgress(const Plan& plan, const Progress& begin,
                           const std::function<void(const Progress&)>& tell)
    : plan_(plan),
      tell_(tell),
      planned_bytes_(plan::read_bytes(plan.schedule())),
      begin_bytes_(begin.bytes),
      progress_(begin),
      last_report_(core::Clock::now()) {
  progress_.waves = plan.waves();
  if (progress_.total_bytes == 0) progress_.total_bytes = plan.needed_bytes();
}

void LoadProgress::finish(std::uint32_t wave) {
  if (!tell_) return;
  read_bytes_ += plan::wave_bytes(plan_.schedule(), wave);
  const double share = static_cast<double>(read_bytes_) / static_cast<double>(planned_bytes_);
  progress_.bytes =
      begin_bytes_ + static_cast<std::uint64_t>(share * static_cast<double>(plan_.needed_bytes()));
  ++progress_.wave;
  report();
}

void LoadProgress::meanwhile() {
  if (tell_ && core::Clock::now() - last_report_ >= interval) report();
}

void LoadProgress::report() {
  last_report_ = core::Clock::now();
  tell_(progress_);
}

}  // namespace safeshuffle::pipeline
