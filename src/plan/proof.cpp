#include "plan/proof.hpp"

#include "plan/cut.hpp"
#include "plan/proof_destination.hpp"
#include "plan/proof_source.hpp"
#include "plan/proof_support.hpp"

namespace safeshuffle::plan {
namespace {

void check_tensors(const Schedule& schedule) {
  for (std::size_t i = 0; i < schedule.cuts.size(); ++i) {
    const TensorInfo& tensor = schedule.catalog.tensors()[i];
    if (schedule.cuts[i] != cut_of(tensor, schedule.placements[i])) {
      fail_proof(tensor.name, "its cut is not that of its placement");
    }
    if (schedule.dtypes[i] != tensor.dtype &&
        !(is_convertible(tensor.dtype) && is_convertible(schedule.dtypes[i]))) {
      fail_proof(tensor.name, "this conversion of its type is not supported");
    }
  }
}

}  // namespace

void prove(const Schedule& schedule) {
  require(schedule.placements.size() == schedule.catalog.tensors().size() &&
              schedule.dtypes.size() == schedule.catalog.tensors().size() &&
              schedule.cuts.size() == schedule.catalog.tensors().size() &&
              schedule.arena_offsets.size() == schedule.world &&
              schedule.ranks.size() == schedule.world,
          "its tables have the wrong sizes");
  check_tensors(schedule);
  prove_reading(schedule);
  prove_writing(schedule);
}

}  // namespace safeshuffle::plan
