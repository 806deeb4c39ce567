#include "plan/proof.hpp"

#include "core/defaults.hpp"
#include "plan/cut.hpp"
#include "plan/geometry.hpp"
#include "plan/landing.hpp"
#include "plan/proof_item.hpp"
#include "plan/proof_parts.hpp"
#include "plan/targets.hpp"

namespace safeshuffle::plan {
namespace {

void check_tensors(const Schedule& schedule) {
  for (std::uint32_t i = 0; i < schedule.cuts.size(); ++i) {
    const TensorInfo& tensor = schedule.catalog.tensors()[i];
    if (schedule.cuts[i] != cut_of(schedule, i)) {
      fail_proof(tensor.name, "its cut does not match its placement");
    }
    if (parts_of(schedule, i) != nullptr && uses_of(schedule, i).size() != 1) {
      fail_proof(tensor.name, "it fills lent memory twice");
    }
    if (!schedule.lands[i] && !arrives_in_place(schedule, i)) {
      fail_proof(tensor.name, "it cannot be received in place");
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
  require(schedule.replica_size != 0 &&
              std::uint64_t{schedule.replicas} * schedule.replica_size == schedule.world,
          "its replicas are not all its ranks");
  require(schedule.dtypes.size() == schedule.catalog.tensors().size() &&
              schedule.lands.size() == schedule.catalog.tensors().size() &&
              schedule.cuts.size() == schedule.catalog.tensors().size() &&
              schedule.sliced.size() == schedule.catalog.tensors().size() &&
              schedule.reads.size() == schedule.world && schedule.ranks.size() == schedule.world,
          "its tables have the wrong sizes");
  check_targets(schedule.catalog, schedule.targets, schedule.replica_size);
  require(schedule.uses == uses_of_targets(schedule.targets) &&
              schedule.first_use == first_uses(schedule.uses, schedule.cuts.size()),
          "it does not use what its targets need");
  check_tensors(schedule);
  const Geometries geometries = find_geometries(schedule);
  prove_reading(schedule, geometries);
  prove_packing(schedule, geometries);
  prove_arenas(schedule, geometries);
  if (!fills_lent_memory(schedule)) prove_compositions(schedule, geometries);
}

}  // namespace safeshuffle::plan
