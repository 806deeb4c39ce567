#include "safeshuffle/prediction.hpp"

#include "plan/estimate.hpp"
#include "plan/geometry.hpp"

namespace safeshuffle {

StepSeconds predict(const Plan& plan, const Site& site) {
  return plan::estimate(plan.schedule(), plan::find_geometries(plan.schedule()), site);
}

}  // namespace safeshuffle
