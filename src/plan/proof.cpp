#include "plan/proof.hpp"

#include "core/defaults.hpp"
#include "plan/cut.hpp"
#include "plan/geometry.hpp"
#include "plan/proof_geometry.hpp"
#include "plan/proof_rank.hpp"
#include "plan/proof_source.hpp"
#include "plan/proof_support.hpp"

namespace safeshuffle::plan {
namespace {

void check_tensors(const Schedule& schedule) {
  for (std::size_t i = 0; i < schedule.cuts.size(); ++i) {
    const TensorInfo& tensor = schedule.catalog.tensors()[i];
    if (schedule.cuts[i] != cut_of(tensor, schedule.placements[i])) {
      fail_proof(tensor.name, "its cut does not match its placement");
    }
    const Placement& placement = schedule.placements[i];
    if (placement.kind == Placement::Kind::single && placement.rank >= schedule.world) {
      fail_proof(tensor.name, "it is placed on an unknown rank");
    }
    if (schedule.dtypes[i] != tensor.dtype &&
        !(is_convertible(tensor.dtype) && is_convertible(schedule.dtypes[i]))) {
      fail_proof(tensor.name, "this conversion of its type is not supported");
    }
  }
}

}  // namespace

void prove(const Schedule& schedule) {
  require(schedule.world != 0 && schedule.window >= core::smallest_window,
          "it has no rank or no window");
  require(schedule.placements.size() == schedule.catalog.tensors().size() &&
              schedule.dtypes.size() == schedule.catalog.tensors().size() &&
              schedule.cuts.size() == schedule.catalog.tensors().size() &&
              schedule.reads.size() == schedule.world && schedule.ranks.size() == schedule.world,
          "its tables have the wrong sizes");
  check_tensors(schedule);
  prove_reading(schedule);
  const Geometries geometries = find_geometries(schedule);
  prove_packing(schedule, geometries);
  prove_arenas(schedule, geometries);
}

}  // namespace safeshuffle::plan
