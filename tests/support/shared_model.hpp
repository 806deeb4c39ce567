// An invented model in files that all ranks of a test share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support/model_files.hpp"
#include "support/mpi_world.hpp"

namespace safeshuffle::testing {

/// Options with which ranks exchange what they read, also if the page cache has it.
inline PlanOptions exchanging() {
  PlanOptions options;
  options.assignment = Assignment::round_robin;
  return options;
}

/// Every rank gets every tensor whole.
inline Options replicated() {
  Options options;
  options.tp_plan = "replicate";
  return options;
}

inline PlanOptions with_window(std::uint64_t window) {
  PlanOptions options = exchanging();
  options.window = window;
  return options;
}

/// Written by rank 0. Creation and destruction are collective.
struct SharedModel {
  explicit SharedModel(const testing::RandomModel& made, std::uint64_t seed = 1) {
    directory.fill([&] { write_model(path(), made.catalog, seed); });
    catalog = open_checkpoint(path()).catalog;
    placements = placements_for(catalog, made);
    MPI_Barrier(MPI_COMM_WORLD);  // only now may a test change the files
  }

  const std::string& path() const noexcept { return directory.path(); }

  Plan plan(const PlanOptions& options = exchanging()) const {
    return make_plan(catalog, placements, world_size(), options);
  }

  SharedDirectory directory;
  Catalog catalog;
  std::vector<Placement> placements;
};

/// Files of two tensors, 40 KiB to split and 8 KiB to replicate.
inline testing::RandomModel plain_model(std::uint32_t files) {
  std::vector<std::vector<testing::Made>> made;
  std::vector<Placement> placements;
  for (std::uint32_t file = 0; file < files; ++file) {
    made.push_back({{testing::numbered("cut", file), DType::F32, {80, 128}},
                    {testing::numbered("whole", file), DType::BF16, {4096}}});
    placements.push_back(testing::cut(0, 80, true));
    placements.push_back(testing::whole());
  }
  return {testing::make_catalog(made), placements};
}

}  // namespace safeshuffle::testing
