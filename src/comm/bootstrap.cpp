#include "safeshuffle/bootstrap.hpp"

#include "core/launcher.hpp"

namespace safeshuffle {

Bootstrap Bootstrap::from_environment() {
  const core::Place place = core::launched_place();
  return {.rank = place.rank,
          .size = place.size,
          .local_rank = place.local_rank,
          .address = place.size > 1 ? core::rendezvous_address() : std::string()};
}

}  // namespace safeshuffle
