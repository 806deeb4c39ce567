#include "plan/rates.hpp"

#include <algorithm>

namespace safeshuffle::plan {
namespace {

constexpr double requests_at_a_time = 16;  // of a rank, to a server (docs/remote.md)

}  // namespace

Rates::Rates(const Site& site)
    : device_(site.device),
      reads_directly_(site.reads_directly),
      costs_(with_defaults(site.costs, site.device)) {}

ReadRate Rates::cold() const noexcept {
  return reads_directly_ ? ReadRate{costs_.read_cold_direct_rank, costs_.read_cold_direct_node}
                         : ReadRate{costs_.read_cold_buffered_rank, costs_.read_cold_buffered_node};
}

double Rates::bytes_per_request() const noexcept {
  return costs_.request_seconds * cold().rank / requests_at_a_time;
}

double Rates::pack_seconds(double bytes, double converted_share) const noexcept {
  return (1 - converted_share) * seconds_for(bytes, costs_.pack) +
         converted_share * seconds_for(bytes, costs_.pack_convert);
}

double Rates::together(double cached, double host_to_device, double pack,
                       double exchange) const noexcept {
  return on_gpus() ? std::max({cached, host_to_device, pack + exchange}) : cached + pack + exchange;
}

}  // namespace safeshuffle::plan
