// An invented model in files of its own, for a group of one rank.
#pragma once

#include <cstdint>
#include <vector>

#include "support/model_files.hpp"
#include "support/temporary_directory.hpp"

namespace safeshuffle::testing {

struct OwnModel {
  explicit OwnModel(std::uint32_t seed) {
    const testing::RandomModel made = testing::random_model(seed);
    write_model(directory.path().string(), made.catalog, seed);
    catalog = open_checkpoint(directory.path().string()).catalog;
    placements = placements_for(catalog, made);
  }

  Plan plan(const PlanOptions& options = {}) const {
    return make_plan(catalog, placements, 1, options);
  }

  testing::TemporaryDirectory directory;
  Catalog catalog;
  std::vector<Placement> placements;
};

}  // namespace safeshuffle::testing
