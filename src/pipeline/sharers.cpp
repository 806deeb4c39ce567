#include "pipeline/sharers.hpp"

#include "core/cpus.hpp"
#include "core/process.hpp"
#include "io/policy.hpp"

namespace safeshuffle::pipeline {

std::string shared_cpus(const Communicator& comm, const Options& options) {
  return core::node_id() + " " + core::cpu_list(io::usable_cpus(options, comm.device()));
}

}  // namespace safeshuffle::pipeline
