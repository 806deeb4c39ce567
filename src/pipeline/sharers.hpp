// Which ranks share the CPUs of their reader threads.
#pragma once

#include <string>

#include "safeshuffle/communicator.hpp"
#include "safeshuffle/options.hpp"

namespace safeshuffle::pipeline {

/// Equal on ranks of one node whose readers may use the same CPUs.
std::string shared_cpus(const Communicator& comm, const Options& options);

}  // namespace safeshuffle::pipeline
