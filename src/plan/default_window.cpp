#include "plan/default_window.hpp"

#include "core/defaults.hpp"

namespace safeshuffle::plan {

std::uint64_t default_window(const Site& site) {
  const core::Defaults& defaults = core::defaults_on(site.device);
  const bool from_storage = site.nodes == 1 && site.reads_directly && site.cached_share < 0.5;
  return from_storage ? defaults.direct_window : defaults.window;
}

}  // namespace safeshuffle::plan
